"""Write constraints.txt: the exact version of everything that pyproject.toml asks for, and of what that brings.

`make lock` calls it, with what is installed in .venv; which version that is, pip has decided.
"""

from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

COURSE = "torch-distributed-live"
FILE = Path(__file__).parent.parent / "constraints.txt"
HEADER = """\
# The exact version of everything that the course is tested with (Python 3.11, Linux). `make lock` writes this file.
# pyproject.toml says what is needed; this file only says which version, and installs nothing by itself.
# A version that needs a newer Python than 3.10 carries a marker: an older one takes the newest version that it can run.
# Left open: what only other systems need, and the CUDA libraries, whose versions torch itself names.
"""
SECTIONS = {"": "the course", "test": "its tests", "site": "its web site", "dev": "the tools of those who change it"}
OLDEST_PYTHON = Version("3.10")


def requirements(name: str, extras: tuple[str, ...] = ("",)) -> list[Requirement]:
    """Return what a distribution needs here, with these of its extras; "" stands for what it always needs."""
    found = [Requirement(line) for line in distribution(name).requires or []]
    return [
        requirement
        for requirement in found
        if any(requirement.marker is None or requirement.marker.evaluate({"extra": extra}) for extra in extras)
        and not (name == "torch" and "linux" in str(requirement.marker).lower())  # the CUDA libraries
    ]


def closure(extras: list[str]) -> dict[str, Version]:
    """Return all that the course brings with these extras, each with the oldest Python for which its version is right.

    The names have the form in which packages are compared.
    """
    todo, seen, oldest = [(COURSE, ("", *extras))], set(), {}
    while todo:
        name, its_extras = node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        oldest[name] = max(oldest.get(name, OLDEST_PYTHON), needed_python(name))
        for requirement in requirements(name, its_extras):
            child = canonicalize_name(requirement.name)
            todo.append((child, ("", *sorted(requirement.extras))))
            # An older Python has an older version of `name`, which allows other versions of what it caps.
            if any(bound.operator in ("<", "<=", "~=", "==") for bound in requirement.specifier):
                oldest[child] = max(oldest.get(child, OLDEST_PYTHON), needed_python(name))
    del oldest[COURSE]
    return oldest


def needed_python(name: str) -> Version:
    """Return the oldest Python, from 3.10 up, for which the version that is here is made."""
    needs = SpecifierSet(distribution(name).metadata.get("Requires-Python", ""))
    return max([OLDEST_PYTHON, *(Version(bound.version) for bound in needs if bound.operator == ">=")])


def pin(name: str, oldest: Version) -> str:
    """Return the line of a package."""
    variable = "python_version" if len(oldest.release) == 2 else "python_full_version"
    marker = f'; {variable} >= "{oldest}"' if oldest > OLDEST_PYTHON else ""
    return f"{name}=={Version(distribution(name).version).public}{marker}"


def main() -> None:
    """Write the file."""
    others = closure(list(SECTIONS))
    always, lines = requirements(COURSE), [HEADER]
    for extra, title in SECTIONS.items():
        asked = [r for r in requirements(COURSE, (extra,)) if extra == "" or r not in always]
        names = sorted({canonicalize_name(r.name) for r in asked} & others.keys())
        lines += [f"# {title}", *[pin(name, others.pop(name)) for name in names], ""]
    lines += ["# what these bring", *[pin(*other) for other in sorted(others.items())], ""]
    FILE.write_text("\n".join(lines))


if __name__ == "__main__":
    main()

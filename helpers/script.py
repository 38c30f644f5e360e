"""The code that a notebook runs on its ranks, as one script for torchrun.

`python -m helpers.script 08_data_parallel` writes `08_data_parallel.py` and says how to run it.
"""

import re
import shlex
import sys
import textwrap
from pathlib import Path

import nbformat

_IN_THE_BACKGROUND = "# The notebook runs a cell here in the background; a script would have to wait for its end."
# In a notebook all ranks have run a cell before the next one begins; here RPC could ask a rank for a function that it
# does not know yet. RPC has no public barrier.
_MEETING = "rpc.api._wait_all_workers(0)"
# A barrier of gloo also waits for earlier calls that its threads have not struck off yet, and raises again what one of
# them has raised, such as a refused operator. A monitored barrier does not.
_LEAVE_GROUP = """\
if dist.is_initialized():
    meet = dist.monitored_barrier if dist.get_backend() == "gloo" else dist.barrier
    meet()
    dist.destroy_process_group()"""
# What a script has to leave, if it has entered it. A thread that is still in a Python callback, as that of a hook, when
# Python ends aborts the process, and PyTorch has no way to wait for these threads.
_FAREWELLS = {
    "rpc.init_rpc(": "rpc.shutdown()",
    "dist.init_process_group(": _LEAVE_GROUP,
    ".then(": "import time\n\ntime.sleep(0.5)  # for the threads of PyTorch that are about to leave a callback",
}


def script(path: Path) -> str:
    """Return what the ranks run in a notebook, up to its exercises, with the headings of the lesson as comments.

    The cells for all ranks stand as they are. Those for some stand under an `if rank in (...)`, before which the ranks
    of an RPC notebook wait for each other. What the notebook's own process does (figures, comparisons between ranks,
    faults) is left out, and so are the cells with `--noblock`, which run in the background, some of them for ever.
    Parameters other than WORLD_SIZE become constants; torchrun gives the number of ranks. A module that lies beside the
    notebook stands in the script whole, in place of the first import from it.
    """
    parts, rpc_runs, modules = [], False, set()
    for cell in nbformat.read(path, as_version=4).cells:
        headings = re.findall(r"^#+ (.+)", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else []
        if "Exercises" in headings:
            break
        parts += [f"# {heading}" for heading in headings]
        if cell.cell_type == "code":
            code = _with_modules(_rank_code(cell), path.parent, modules)
            parts += [_MEETING, code] if rpc_runs and code.startswith("if rank in") else [code]
            rpc_runs = rpc_runs or "rpc.init_rpc(" in code
    text = "\n\n".join(filter(None, parts))
    parts += [farewell for begin, farewell in _FAREWELLS.items() if begin in text]
    return "\n\n\n".join(filter(None, parts)) + "\n"


def number_of_ranks(path: Path) -> int:
    """Return the number of ranks that the cell of parameters of a notebook asks for."""
    for cell in nbformat.read(path, as_version=4).cells:
        if "parameters" in cell.metadata.get("tags", []):
            return int(re.search(r"^WORLD_SIZE = (\d+)", cell.source, re.MULTILINE)[1])
    raise ValueError(f"{path} has no cell that is tagged `parameters`.")


def command(path: Path, script: Path) -> str:
    """Return the command that runs the script of a notebook, as a line for a shell in this folder.

    It names the torchrun of the course, because another one, or none, may be first in the PATH of the shell.
    """
    torchrun = Path(sys.executable).parent / "torchrun"  # not `resolve`: the Python of a venv is a link to another one
    if torchrun.is_relative_to(Path.cwd()):
        torchrun = torchrun.relative_to(Path.cwd())
    return shlex.join([str(torchrun), "--nproc-per-node", str(number_of_ranks(path)), str(script)])


def _rank_code(cell) -> str:
    """Return what a code cell runs on the ranks, or the constants that its parameters are."""
    first, _, body = cell.source.partition("\n")
    if "parameters" in cell.metadata.get("tags", []):
        return "\n".join(line for line in cell.source.splitlines() if not line.startswith("WORLD_SIZE"))
    if not first.startswith("%%px"):
        return "\n".join(line.removeprefix("%px ") for line in cell.source.splitlines() if line.startswith("%px "))
    if "--noblock" in first:
        return _IN_THE_BACKGROUND
    body = body.strip("\n")
    if targets := re.search(r"--targets \{?([^\s}]+)", first):
        ranks = f"range(n)[{targets[1]}]" if ":" in targets[1] else f"({targets[1]},)"
        return f"if rank in {ranks}:\n" + textwrap.indent(body, "    ")
    return body


def _with_modules(code: str, folder: Path, known: set[str]) -> str:
    """Return the code with the modules of this folder in place of what it imports from them, each once."""

    def text(imported):
        module = folder / f"{imported[1]}.py"
        if not module.exists():
            return imported[0]
        first = module not in known
        known.add(module)
        return module.read_text() if first else ""

    return re.sub(r"^from (\w+) import .*\n?", text, code, flags=re.MULTILINE)


def main(names: list[str]) -> None:
    """Write the script of each notebook, given as "08_data_parallel", into this folder; print how to run it.

    In a checkout the learner's own copy of the notebook comes before the original.
    """
    if not names:
        sys.exit("Name a notebook, as in: make script NOTEBOOK=08_data_parallel")
    for name in names:
        own, original = (Path(folder, name).with_suffix(".ipynb") for folder in ("my-course/notebooks", "notebooks"))
        path = own if own.exists() else original
        if not path.exists():
            there = ", ".join(sorted(other.stem for other in path.parent.glob("[0-9]*.ipynb"))) or "none in this folder"
            sys.exit(f"There is no notebook {path}. Those that are there: {there}.")
        target = Path(path.stem).with_suffix(".py")
        target.write_text(script(path))
        if path == own:
            print(f"From {path}:")
        print(command(path, target))


if __name__ == "__main__":
    main(sys.argv[1:])

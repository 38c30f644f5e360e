"""Convert the code that a notebook runs on its ranks into one script for torchrun.

`python -m helpers.script 08_data_parallel` writes `08_data_parallel.py` and prints the command that runs it.
"""

import re
import shlex
import sys
import textwrap
from pathlib import Path

import nbformat

_IN_THE_BACKGROUND = "# The notebook runs a cell here in the background; a script would have to wait for its end."
# In a notebook all ranks have run a cell before the next cell begins. In a script, RPC could request a function that a
# rank has not defined yet. RPC has no public barrier.
_RPC_BARRIER = "rpc.api._wait_all_workers(0)"
# gloo's barrier also waits for earlier calls that its threads have not completed yet, and raises their errors again,
# such as the error of a refused operator. A monitored barrier does not.
_LEAVE_GROUP = """\
if dist.is_initialized():
    meet = dist.monitored_barrier if dist.get_backend() == "gloo" else dist.barrier
    meet()
    dist.destroy_process_group()"""
# The code that a script needs at its end, by the text that makes it necessary. If a thread is still in a Python
# callback, such as a hook's, when Python ends, the process aborts, and PyTorch has no way to wait for such threads.
_TEARDOWN = {
    "rpc.init_rpc(": "rpc.shutdown()",
    "dist.init_process_group(": _LEAVE_GROUP,
    ".then(": "import time\n\ntime.sleep(0.5)  # for the threads of PyTorch that are about to leave a callback",
}


def script(path: Path) -> str:
    """Return the code that the ranks run in a notebook, up to its exercises, with the headings as comments.

    Cells for all ranks are copied unchanged. Cells for some ranks are put under an `if rank in (...)`, before which the
    ranks of an RPC notebook wait for each other. The script leaves out the code of the notebook's own process (figures,
    comparisons between ranks, faults), and the cells with `--noblock`, which run in the background, some of them
    forever. Parameters other than WORLD_SIZE become constants; torchrun sets the number of ranks. The whole text of a
    module next to the notebook replaces the first import from it.
    """
    parts, rpc_runs, modules = [], False, set()
    for cell in nbformat.read(path, as_version=4).cells:
        headings = re.findall(r"^#+ (.+)", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else []
        if "Exercises" in headings:
            break
        parts += [f"# {heading}" for heading in headings]
        if cell.cell_type == "code":
            code = _with_modules(_rank_code(cell), path.parent, modules)
            parts += [_RPC_BARRIER, code] if rpc_runs and code.startswith("if rank in") else [code]
            rpc_runs = rpc_runs or "rpc.init_rpc(" in code
    text = "\n\n".join(filter(None, parts))
    parts += [teardown for begin, teardown in _TEARDOWN.items() if begin in text]
    return "\n\n\n".join(filter(None, parts)) + "\n"


def number_of_ranks(path: Path) -> int:
    """Return the number of ranks from the cell of parameters of a notebook."""
    for cell in nbformat.read(path, as_version=4).cells:
        if "parameters" in cell.metadata.get("tags", []):
            return int(re.search(r"^WORLD_SIZE = (\d+)", cell.source, re.MULTILINE)[1])
    raise ValueError(f"{path} has no cell that is tagged `parameters`.")


def command(path: Path, script: Path) -> str:
    """Return the command that runs the script of a notebook, as a line for a shell in this folder.

    The command gives the path of the course's torchrun, because the PATH of the shell may lead to another torchrun or
    to none.
    """
    torchrun = Path(sys.executable).parent / "torchrun"  # not `resolve`, because a venv's Python is a link
    if torchrun.is_relative_to(Path.cwd()):
        torchrun = torchrun.relative_to(Path.cwd())
    return shlex.join([str(torchrun), "--nproc-per-node", str(number_of_ranks(path)), str(script)])


def _rank_code(cell) -> str:
    """Return the code that a code cell runs on the ranks, or its constants if it is the cell of parameters."""
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
    """Return the code with the text of this folder's modules in place of the imports from them, each module once."""

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

    In a checkout, prefer the learner's own copy of the notebook to the original.
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

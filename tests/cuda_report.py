"""Run every notebook and the CUDA tests on a machine with a GPU, and write what happened into cuda-report.md.

`make test-cuda` does this. The outputs of the notebooks are not compared with the stored ones, which a machine without
a GPU has made; the asserts in their cells count. The exit status is 0 if everything passed.
"""

import importlib.metadata
import platform
import re
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import nbformat
import torch
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from tqdm import tqdm

from helpers import World

ROOT = Path(__file__).parent.parent
REPORT = ROOT / "cuda-report.md"
BYTES = 2**28
REPEATS = 6
PACKAGES = ("torch", "ipyparallel", "jupyterlab", "gymnasium", "numpy", "matplotlib")

ALL_REDUCE = """
import time
from datetime import timedelta
import torch
import torch.distributed as dist
from helpers import devices

def seconds(backend, device, size):
    group, tensor = dist.new_group(backend=backend), torch.zeros(size, dtype=torch.uint8, device=device)
    times = []
    for _ in range(6):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        tensor[:1].tolist()  # waits for a GPU to finish
        times.append(time.perf_counter() - begin)
    return min(times)

choice = devices.of_this_rank()
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
loopback, chosen = seconds("gloo", "cpu", 2**26), seconds(choice.backend, choice.device, 2**26)
"""


def main() -> None:
    """Run everything, write the report, and exit."""
    if not torch.cuda.is_available():
        sys.exit(f"make test-cuda needs a GPU, and torch {torch.__version__} finds none on this machine.")
    tests = subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "cuda", "tests/system/test_cuda.py"], cwd=ROOT)
    paths = sorted(ROOT.glob("notebooks/[0-9]*.ipynb"))
    notebooks = [(path.stem, *run(path)) for path in tqdm(paths, desc="notebooks")]
    REPORT.write_text(report(tests.returncode == 0, notebooks, bandwidths()))
    print(REPORT.read_text())
    sys.exit(tests.returncode != 0 or any(error for _, error, _, _ in notebooks))


def run(path: Path) -> tuple[str, float, list[str]]:
    """Run a notebook; return its error in one line or "", the seconds it took, and what it says of its devices."""
    notebook = nbformat.read(path, as_version=4)
    begin, error = time.monotonic(), ""
    try:
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as failure:
        lines = re.sub(r"\x1b\[[0-9;]*m", "", str(failure)).strip().splitlines()
        error = f"{type(failure).__name__}: {lines[-1]}" if lines else type(failure).__name__
    return error, time.monotonic() - begin, places(notebook)


def places(notebook: nbformat.NotebookNode) -> list[str]:
    """Return what a notebook prints of its choice of device and backend, each sentence once."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)
    return list(dict.fromkeys(re.findall(r"(?:gloo|nccl) on (?:cpu|cuda:\d+)", text)))


def bandwidths() -> dict[str, float]:
    """Return bytes per second: of copies to, from and within the first GPU, and of an all-reduce of two ranks."""
    there = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
    here, copy = torch.empty(BYTES, dtype=torch.uint8, pin_memory=True), torch.empty_like(there)
    copies = {"copy to the GPU": (there, here), "copy from the GPU": (here, there), "copy within it": (copy, there)}
    rates = {name: BYTES / min(copy_seconds(*pair) for _ in range(REPEATS)) for name, pair in copies.items()}
    world = World(2)
    try:
        world.view.execute(ALL_REDUCE)
        choice = world.view["choice"][0]
        rates["all-reduce of 64 MiB, 2 ranks, gloo on cpu (loopback)"] = 2**26 / max(world.view["loopback"])
        chosen = f"all-reduce of 64 MiB, 2 ranks, {choice.backend} on {choice.device}"
        rates[chosen] = 2**26 / max(world.view["chosen"])
    finally:
        world.stop()
    return rates


def copy_seconds(to: torch.Tensor, source: torch.Tensor) -> float:
    """Return how long the GPU takes to copy a tensor."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    to.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def report(tests_passed: bool, notebooks: list[tuple[str, str, float, list[str]]], rates: dict[str, float]) -> str:
    """Return the report as Markdown."""
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in PACKAGES)
    lines = [
        f"# The course on a GPU, {date.today()}",
        "",
        f"- GPUs: {', '.join(names) or 'none'}; CUDA {torch.version.cuda}",
        f"- Python {platform.python_version()}, {versions}",
        f"- CUDA tests: {'passed' if tests_passed else 'FAILED'}",
        "",
        "| what | GB/s |",
        "|---|---|",
        *(f"| {name} | {rate / 1e9:.2f} |" for name, rate in rates.items()),
        "",
        "| notebook | result | seconds | devices that it names |",
        "|---|---|---|---|",
    ]
    for name, error, seconds, said in notebooks:
        result = error.replace("|", "\\|") or "passed"
        lines.append(f"| {name} | {result} | {seconds:.0f} | {', '.join(said) or 'none: CPU tensors only'} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

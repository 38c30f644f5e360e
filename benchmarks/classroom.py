"""How many learners one machine holds: each has a kernel as JupyterLab starts it, and a world of four ranks.

They come one after the other and work through notebooks 03 and 08 at reading pace: for each word of prose and each line
of code a cell has its time. Then nobody runs a cell, for half a minute. Then each has two ranks wait for each other,
and presses Interrupt. `LEARNERS=60 MINUTES=20 python -m benchmarks classroom` has 60 learners work for 20 minutes
instead of 48 for 10. No more come when those who are there will need what memory is left.
"""

import asyncio
import os
import time
from contextlib import suppress
from statistics import median

import nbformat
import psutil
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat.v4 import new_code_cell
from tqdm import tqdm

from benchmarks.lesson import NOTEBOOKS
from helpers.kernels import KERNEL

LEARNERS = int(os.environ.get("LEARNERS", 48))
MINUTES = float(os.environ.get("MINUTES", 10))
LESSONS = ("03_point_to_point", "08_data_parallel")
SECONDS_BETWEEN_ARRIVALS = 5
SECONDS_FOR_A_WORD = 60 / 200
SECONDS_FOR_A_LINE = 2
SECONDS_OF_REST = 30
LEAST_MEMORY = 7 * 2**30  # a learner who works takes a third more than one who has just come, and files need some
DEADLOCK = "%%px\ndist.recv(torch.zeros(1), (dist.get_rank() + 1) % dist.get_world_size())"


class Learner:
    """One learner: a kernel, and the lesson that it works through; `start` and `interrupt` are what it has measured."""

    def __init__(self, lesson: str):
        self.cells = nbformat.read(NOTEBOOKS / f"{lesson}.ipynb", as_version=4).cells
        page = nbformat.v4.new_notebook(cells=[new_code_cell()])  # for the cell that runs
        self.client = NotebookClient(page, timeout=120, allow_errors=True, kernel_name=KERNEL)
        self.place = 0
        self.start = None
        self.interrupt = None
        self.ran = 0
        self.failed = 0

    async def arrive(self) -> None:
        """Start the kernel, and run the cells of the lesson up to the first one for the ranks."""
        begin = time.perf_counter()
        self.client.km = self.client.create_kernel_manager()
        await self.client.async_start_new_kernel(cwd=str(NOTEBOOKS))
        await self.client.async_start_new_kernel_client()
        while not self.cells[self.place - 1].source.startswith("%%px"):
            if self.cells[self.place].cell_type == "code":
                await self.run(self.cells[self.place].source)
            self.place += 1
        self.start = time.perf_counter() - begin

    async def work(self, until: asyncio.Event) -> None:
        """Read and run the cells that follow, and the lesson from the top again, until there is no more time."""
        while not until.is_set():
            cell = self.cells[self.place % len(self.cells)]
            self.place += 1
            if cell.cell_type == "code":
                await self.run(cell.source)
                seconds = SECONDS_FOR_A_LINE * len(cell.source.splitlines())
            else:
                seconds = SECONDS_FOR_A_WORD * len(cell.source.split())
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(until.wait(), seconds)

    async def run(self, source: str) -> bool:
        """Run a cell, and return whether it has ended without an error."""
        cell = new_code_cell(source)
        await self.client.async_execute_cell(cell, 0, store_history=False)
        good = all(output.output_type != "error" for output in cell.outputs)
        self.ran += 1
        self.failed += not good
        return good

    async def press_interrupt(self) -> None:
        """Have all ranks wait for each other, press Interrupt, and measure until the cell has ended.

        Nothing is measured for a learner whose world was closed, at the end of the lesson.
        """
        running = asyncio.create_task(self.client.async_execute_cell(new_code_cell(DEADLOCK), 0, store_history=False))
        await asyncio.sleep(3)
        if running.done():
            return
        begin = time.perf_counter()
        await self.client.km.interrupt_kernel()
        await running
        self.interrupt = time.perf_counter() - begin

    async def leave(self) -> None:
        """End the kernel, and with it the world."""
        await self.client._async_cleanup_kernel()


def rows() -> list[list]:
    """Let the learners work, and return the rows of the table."""
    return asyncio.run(_class())


async def _class():
    before = psutil.virtual_memory().available
    learners, working, until = [], [], asyncio.Event()
    try:
        for number in tqdm(range(LEARNERS), desc="learners"):
            if psutil.virtual_memory().available < LEAST_MEMORY:
                break
            learners.append(Learner(LESSONS[number % len(LESSONS)]))
            begin = time.perf_counter()
            await learners[-1].arrive()
            working.append(asyncio.create_task(learners[-1].work(until)))
            await asyncio.sleep(max(0, SECONDS_BETWEEN_ARRIVALS - (time.perf_counter() - begin)))
        psutil.cpu_percent()
        await asyncio.sleep(60 * MINUTES)
        busy = psutil.cpu_percent()
        until.set()
        await asyncio.gather(*working)
        psutil.cpu_percent()
        await asyncio.sleep(SECONDS_OF_REST)
        idle = psutil.cpu_percent()
        memory = (before - psutil.virtual_memory().available) / len(learners)
        await asyncio.gather(*[_interrupt_in_turn(number, learner) for number, learner in enumerate(learners)])
    except (CellTimeoutError, DeadKernelError) as error:
        return [[f"learners until one could not go on: {type(error).__name__}", str(len(learners)), "", ""]]
    finally:
        for learner in tqdm(learners, desc="leaving"):
            await learner.leave()
    starts = [learner.start for learner in learners]
    interrupts = [learner.interrupt for learner in learners if learner.interrupt is not None]
    ran, failed = sum(learner.ran for learner in learners), sum(learner.failed for learner in learners)
    return [
        ["learners, each with a kernel and a world of 4", str(len(learners)), f"{LEARNERS} came", ""],
        ["cells that they ran", str(ran), f"{failed} failed", ""],
        ["start, until the ranks have run a cell: longest, median", *_longest(starts), ""],
        [f"Interrupt of {len(interrupts)} learners whose ranks wait: longest, median", *_longest(interrupts), ""],
        ["processors in use while all work", f"{busy:.0f} %", "", ""],
        ["processors in use while nobody runs a cell", f"{idle:.0f} %", "", ""],
        ["memory for each learner", f"{memory / 2**20:.0f} MiB", "", ""],
    ]


def _longest(seconds):
    return f"{max(seconds):.1f} s", f"{median(seconds):.1f} s"


async def _interrupt_in_turn(number, learner):
    await asyncio.sleep(number)
    await learner.press_interrupt()

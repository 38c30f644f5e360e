"""The language model over two ranks: bytes of a step, predicted and counted, and tokens per second beside one process.

Nothing else may use the loopback meanwhile, or more bytes are counted than were predicted.
"""

from statistics import median

import ipyparallel as ipp

from benchmarks import lesson, side_by_side
from helpers import World
from helpers.measure import network

NOTEBOOK = "25_faster_distributed_rnn.ipynb"
TURNS = 25
TOKENS = 320
DEFINITIONS = ["First", "windows", "new_optimizer", "step", "carried", "DecoderWithLoss", "Second"]
TIMED = ["local_step", "duration"]

# On the trainer: the versions, as the notebook makes them, and the bytes that each has to send.
VERSIONS = """
words, targets = next(windows(text.training))
alone = First(size, width, [Timed(nn.Embedding, size, width), Timed(nn.Linear, width, size)])
adam = torch.optim.Adam(p for m in (alone.table, alone.lstm, alone.decoder) for p in m.parameters())
first, second = First(size, width), Second(size, width)
versions = {"one process": (local_step, alone, adam)}
versions |= {"first": (step, first, new_optimizer(first)), "second": (step, second, new_optimizer(second))}
tokens, sent = words.numel(), words.numel() + len(words.unique())
payload = {"first": 8 * tokens + 8 * tokens * (2 * width + size), "second": 8 * sent + 8 * sent * width}

def turns(repeats):
    return [[duration(*version) for version in versions.values()] for _ in range(repeats)]

def bytes_of(version):
    '''Return the bytes of a step, predicted and counted.'''
    _, model, optimizer = versions[version]
    small, one_word = type(model)(2, 1), torch.zeros(2, 1, 1, dtype=torch.int64)
    beside = min(carried(small, new_optimizer(small), *one_word) for _ in range(3))
    return payload[version] + beside, min(carried(model, optimizer, words, targets) for _ in range(5))
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    world = World(2)
    try:
        world.view.execute(lesson.setup(NOTEBOOK) + "\n" + lesson.definitions(NOTEBOOK, *DEFINITIONS, *TIMED))
        world.view.client[0].execute(VERSIONS, block=True)
        _turns(world, 3)
        bytes_of = {version: _on_trainer(world, "bytes_of", version) for version in ("first", "second")}
        times = {"loopback": _turns(world, TURNS)}
        if network.limit(world, 1e9):
            times["1 Gbit/s"] = _turns(world, TURNS)
    finally:
        world.stop()
    table = [
        [
            f"bytes of a step, {version} version",
            f"{counted:,.0f} counted",
            f"{predicted:,.0f} predicted",
            f"{counted / predicted:.3f}",
        ]
        for version, (predicted, counted) in bytes_of.items()
    ]
    for link, seconds in times.items():
        for version, other in (("second", "first"), ("first", "one process"), ("second", "one process")):
            ratio = side_by_side.ratio(seconds[other], seconds[version])
            compared = f"{_speed(seconds[other])}, {other}"
            table.append([f"{version} version, {link}", _speed(seconds[version]), compared, f"{ratio:.2f}"])
    if len(times) == 1:
        table.append(["both versions on a slow link", "this system cannot pace links", "", ""])
    return table


def _turns(world, repeats):
    versions = zip(*_on_trainer(world, "turns", repeats), strict=True)
    return dict(zip(("one process", "first", "second"), versions, strict=True))


def _on_trainer(world, function, argument):
    return world.view.client[0].apply_async(ipp.Reference(function), argument).get()


def _speed(seconds):
    return f"{TOKENS / median(seconds):,.0f} tokens/s"

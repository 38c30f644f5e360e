"""The language model over two ranks: bytes of a step, perplexity, and tokens per second beside one process.

Nothing else may use the loopback meanwhile, or more bytes are counted than were predicted.
"""

from statistics import median

import ipyparallel as ipp

from benchmarks import lesson, side_by_side
from helpers import World
from helpers.measure import network

NOTEBOOK = "26_faster_distributed_rnn.ipynb"
TURNS = 25
TOKENS = 320
STEPS = 100
DEFINITIONS = ["SendsLogits", "windows", "new_optimizer", "step", "bytes_per_step", "DecoderWithLoss", "SendsLoss"]
TIMED = ["local_step", "duration"]
COPIED = ["read", "write", "start_from"]

# On the trainer: the variants, as the notebook makes them, and the bytes that each has to send.
VARIANTS = """
words, targets = next(windows(text.training))
parts = [Timed(nn.Embedding, vocabulary, width), Timed(nn.Linear, width, vocabulary)]
alone = SendsLogits(vocabulary, width, parts)
adam = torch.optim.Adam(p for m in (*parts, alone.lstm) for p in m.parameters())
logits, few_bytes = SendsLogits(vocabulary, width), SendsLoss(vocabulary, width)
variants = {"one process": (local_step, alone, adam)}
variants |= {"logits": (step, logits, new_optimizer(logits)), "few bytes": (step, few_bytes, new_optimizer(few_bytes))}
tokens, items = words.numel(), words.numel() + len(words.unique())
payload = {"logits": 8 * tokens + 8 * tokens * (2 * width + vocabulary), "few bytes": 8 * items + 8 * items * width}

def turns(repeats):
    return [[duration(*variant) for variant in variants.values()] for _ in range(repeats)]

def bytes_of(variant):
    '''Return the bytes of a step, predicted and counted.'''
    _, model, optimizer = variants[variant]
    tiny, one_word = type(model)(2, 1), torch.zeros(2, 1, 1, dtype=torch.int64)
    overhead = min(bytes_per_step(tiny, new_optimizer(tiny), *one_word) for _ in range(3))
    return payload[variant] + overhead, min(bytes_per_step(model, optimizer, words, targets) for _ in range(5))

def perplexity(model, steps):
    '''Train a model, and return its perplexity on the last 20 windows of the training.'''
    losses, hidden, optimizer = [], None, new_optimizer(model)
    for window in islice(windows(text.training), steps):
        loss, hidden = step(model, optimizer, *window, hidden)
        losses.append(loss)
    return torch.tensor(losses[-20:]).mean().exp().item()

def perplexities(steps):
    '''Return the perplexity of both variants after training from the same weights.'''
    trained = SendsLogits(vocabulary, width), SendsLoss(vocabulary, width)
    start_from(*trained)
    return [perplexity(model, steps) for model in trained]
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    world = World(2)
    try:
        names = [*DEFINITIONS, *TIMED, *COPIED]
        world.view.execute(lesson.setup(NOTEBOOK) + "\n" + lesson.definitions(NOTEBOOK, *names))
        world.view.client[0].execute(VARIANTS, block=True)
        _turns(world, 3)
        bytes_of = {variant: _on_trainer(world, "bytes_of", variant) for variant in ("logits", "few bytes")}
        world.view.execute("torch.manual_seed(0)")
        of_logits, of_few_bytes = _on_trainer(world, "perplexities", STEPS)
        times = {"loopback": _turns(world, TURNS)}
        if network.limit(world, 1e9):
            times["1 Gbit/s"] = _turns(world, TURNS)
    finally:
        world.stop()
    table = [
        [
            f"bytes of a step, {variant}",
            f"{counted:,.0f} counted",
            f"{predicted:,.0f} predicted",
            f"{counted / predicted:.3f}",
        ]
        for variant, (predicted, counted) in bytes_of.items()
    ]
    compared, ratio = f"{of_logits:.1f}, logits", f"{of_few_bytes / of_logits:.3f}"
    table.append([f"perplexity after {STEPS} steps, few bytes", f"{of_few_bytes:.1f}", compared, ratio])
    for link, seconds in times.items():
        for variant, other in (("few bytes", "logits"), ("logits", "one process"), ("few bytes", "one process")):
            ratio = side_by_side.ratio(seconds[other], seconds[variant])
            compared = f"{_speed(seconds[other])}, {other}"
            table.append([f"{variant}, {link}", _speed(seconds[variant]), compared, f"{ratio:.2f}"])
    if len(times) == 1:
        table.append(["both variants on a slow link", "this system cannot pace links", "", ""])
    return table


def _turns(world, repeats):
    variants = zip(*_on_trainer(world, "turns", repeats), strict=True)
    return dict(zip(("one process", "logits", "few bytes"), variants, strict=True))


def _on_trainer(world, function, argument):
    return world.view.client[0].apply_async(ipp.Reference(function), argument).get()


def _speed(seconds):
    return f"{TOKENS / median(seconds):,.0f} tokens/s"

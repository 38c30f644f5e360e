"""The variants of gradient synchronisation of the lesson, next to DDP, on 2 ranks."""

from statistics import median

from benchmarks import lesson, side_by_side
from helpers import World
from helpers.measure import network

NOTEBOOK = "09_overlap.ipynb"
REPEATS = 15
VARIANTS = ["not_averaged", "per_parameter", "one_bucket", "early_buckets", "by_ddp"]
HELPERS = ["stack", "sgd", "step", "Bucket", "EarlyBucketOfTheLesson"]

PER_PARAMETER = """
def per_parameter(model):
    def finish():
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= n

    return model, finish
"""

MODELS = """
class Model:
    '''A stack of square layers with each variant of synchronisation, and a batch to train it on.'''

    def __init__(self, layers, width, batch):
        self.variants, self.optimizers = {}, {}
        for variant in variants:
            model = stack(layers, width)
            self.variants[variant.__name__] = variant(model)
            self.optimizers[variant.__name__] = sgd(model)
        self.batch = torch.randn(batch, width), torch.randint(width, (batch,))
        self.bytes = sum(parameter.nbytes for parameter in model.parameters())

    def train(self, variant):
        model, finish = self.variants[variant.__name__]
        step(model, finish, self.optimizers[variant.__name__], *self.batch)

    def backward(self):
        '''Return how long the backward pass takes without communication.'''
        model, _ = self.variants["not_averaged"]
        images, labels = self.batch
        loss = nn.functional.cross_entropy(model(images), labels)
        begin = time.perf_counter()
        loss.backward()
        return time.perf_counter() - begin

train = Model.train
large = Model(layers=6, width=1024, batch=256)
small = Model(layers=60, width=32, batch=8)
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    world = World(2)
    try:
        world.view["SEED"] = 0
        world.view.execute(lesson.setup(NOTEBOOK) + side_by_side.TIMED)
        world.view.execute(lesson.definitions(NOTEBOOK, *HELPERS, *[v for v in VARIANTS if v != "per_parameter"]))
        world.view.execute(PER_PARAMETER)
        world.view.execute("EarlyBucket = EarlyBucketOfTheLesson")
        world.view.execute(f"variants = [{', '.join(VARIANTS)}]" + MODELS)
        megabytes = world.view["large.bytes"][0] / 1e6
        size = f"{megabytes:.0f} MB"
        loopback, many = _steps(world, "large"), _steps(world, "small")
        # All ranks together, as in a step.
        world.view.execute("backward = sorted(large.backward() for _ in range(9))[4]")
        backward = max(world.view["backward"])
        rate = megabytes * 8e6 / backward  # 2(n - 1)/n is 1 for two ranks
        paced = _steps(world, "large") if network.limit(world, rate) else None
    finally:
        world.stop()
    table = [
        _row(f"overlapped by hand, {size}", loopback, "early_buckets", "by_ddp"),
        _row(f"overlapped by hand, {size}", loopback, "early_buckets", "one_bucket"),
        _row(f"one bucket by hand, {size}", loopback, "one_bucket", "by_ddp"),
        _row("per parameter, 120 small ones", many, "per_parameter", "by_ddp"),
        _row("overlapped by hand, 120 small ones", many, "early_buckets", "by_ddp"),
    ]
    if paced is None:
        return [*table, [f"{size} on a slow link", "this system cannot pace links", "", ""]]
    link = f"{size} at {rate / 1e9:.2g} Gbit/s"
    return [
        *table,
        [f"backward alone, {size}", f"{backward * 1e3:.0f} ms", "as long as its all_reduce at that rate", ""],
        _row(f"overlapped by hand, {link}", paced, "early_buckets", "by_ddp"),
        _row(f"overlapped by hand, {link}", paced, "early_buckets", "one_bucket"),
        _row(f"DDP, {link}", paced, "by_ddp", "one_bucket"),
    ]


def _steps(world, model):
    calls = [["train", model, variant] for variant in VARIANTS]
    return dict(zip(VARIANTS, side_by_side.seconds(world, calls, REPEATS), strict=True))


def _row(what, times, variant, other):
    ratio = side_by_side.ratio(times[variant], times[other])
    compared = f"{median(times[other]) * 1e3:.1f} ms, {other}"
    return [f"step, {what}", f"{median(times[variant]) * 1e3:.1f} ms", compared, f"{ratio:.2f}"]

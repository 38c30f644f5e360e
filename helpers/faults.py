"""The faults of 40_find_the_fault: the fault in each broken training, the ranks at fault, and the repair.

The scripts are in notebooks/faulty. Each fault happened in a real project: `thread` is the public discussion of it.
"""

from collections.abc import Callable
from typing import NamedTuple

# Each cause, with a description and the symptom that it would have.
CAUSES = {
    "same order": (
        "a sampler is not told which epoch it is",
        "a rank would see the same examples in the same batches in every epoch",
    ),
    "other names": (
        "parameters are stored under other names than those they are looked for",
        "a model would be after loading what it was before",
    ),
    "sent too often": (
        "gradients are averaged although nobody needs them yet",
        "the weights would be right, and there would be more than one all-reduce of a bucket for each step",
    ),
    "gradient cut off": (
        "a collective passes no gradient back to where its input came from",
        "the loss of the first step would be that of one process, and its gradient would not",
    ),
    "collective inside a call": (
        "one rank calls something that makes a collective inside, and the others do not",
        "a rank would be in a collective that no line of the script names, while the others are elsewhere",
    ),
    "wait in a callback": (
        "a callback waits for what only the thread that runs it could bring",
        "all ranks would stand on the same line, and collectives would have begun in a callback and never end",
    ),
    "no lock": (
        "two calls read and write the same variable at the same time",
        "updates would be lost, and how many would differ from run to run",
    ),
    "statistics of one's own": (
        "running statistics differ between the ranks, and each rank goes on with its own",
        "parameters would be equal on all ranks, and buffers would not",
    ),
    "branch on own data": (
        "a rank makes or leaves out a collective because of the data that it happens to have",
        "the history would show a collective in the script that depends on what is in the rank's part",
    ),
    "scaled once more": (
        "gradients are averaged over the ranks, and the loss is scaled for it as well",
        "the first gradient would be a whole multiple of that of one process",
    ),
    "number of the job": (
        "a number that counts over all hosts is used where one counts on its own host",
        "all would be well on the first host",
    ),
    "state left behind": (
        "a training goes on with a part of its state fresh",
        "it would agree with one process until it is resumed",
    ),
    "one batch more": (
        "a rank has more batches than the others",
        "a rank would be in a backward pass when the others are through with all of theirs",
    ),
    "another beginning": (
        "the ranks begin with different parameters",
        "the parameters of the ranks would differ before the first step",
    ),
    "unused parameter": (
        "a parameter takes no part in the loss of some rank",
        "DDP would refuse the second step, and name the parameters that got no gradient",
    ),
    "too little time": (
        "a rank is slow, and the timeout of its group is shorter than it takes",
        "with a longer timeout the script would come to its end",
    ),
}


class Fault(NamedTuple):
    """A fault: its cause, the lines at fault, the ranks at fault, a public thread about it, and the repair.

    Each entry of `lines` is a text that occurs on only one line. If something is missing, an answer may name any of the
    `lines`. `ranks(chosen, size)` returns the list of right answers, where `chosen` is the variable of that name in the
    script. A repair must keep the texts in `keeps`, because without them the script would be a different training.
    """

    cause: str
    lines: list[str]
    ranks: Callable[[int, int], list[list[int]]]
    title: str
    thread: str
    change: tuple[str, str]
    keeps: list[str] = []


def _all(_, size):
    return [list(range(size))]


def _chosen(chosen, _):
    return [[chosen]]


def _others(chosen, size):
    return [[rank for rank in range(size) if rank != chosen]]


def _second_host(_, size):
    return [list(range(size // 2, size))]


def _all_or_not_the_first(_, size):
    return [list(range(size)), list(range(1, size))]


EXAMPLE = "shared_out"

FAULTS = {
    EXAMPLE: Fault(
        "one batch more",
        ["for batch in mine.split(24 // n):", "mine = torch.cat(", "if rank == chosen:"],
        _chosen,
        "Support uneven DDP inputs",
        "https://github.com/pytorch/pytorch/issues/33148",
        ("mine.split(24 // n)", "mine.split(24 // n)[:2]"),
    ),
    "accumulated": Fault(
        "sent too often",
        ["for micro_batch in range(4):", "loss = nn.functional", "loss.backward()"],
        _all,
        "Avoid unnecessary DDP synchronization when gradient_accumulation_steps > 1",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/4092",
        (
            "        loss = nn.functional",
            "        model.require_backward_grad_sync = micro_batch == 3\n        loss = nn.functional",
        ),
        ["sent += bucket.buffer().nbytes", "range(4)"],
    ),
    "all_features": Fault(
        "gradient cut off",
        ["parts = [torch.empty_like", "dist.all_gather(parts", "parts[rank] = features", "return torch.cat(parts)"],
        _all,
        "DistributedDataParallel",
        "https://github.com/HobbitLong/SupContrast/issues/26",
        (
            "    parts = [torch.empty_like(features) for _ in range(n)]\n"
            "    dist.all_gather(parts, features)\n"
            "    parts[rank] = features\n"
            "    return torch.cat(parts)\n",
            "    return torch.cat(torch.distributed.nn.functional.all_gather(features))\n",
        ),
    ),
    "devices_of_a_host": Fault(
        "number of the job",
        ["device = devices["],
        _second_host,
        "Multi-node fine-tuning getting RuntimeError: : CUDA error: invalid device ordinal",
        "https://github.com/meta-llama/llama-cookbook/issues/90",
        ('os.environ["RANK"]', 'os.environ["LOCAL_RANK"]'),
    ),
    "evaluated": Fault(
        "collective inside a call",
        ["if rank == chosen:", "loss = nn.functional.mse_loss(model(inputs), targets)"],
        _chosen,
        "Using torch.distributed.barrier() makes the whole code hang",
        "https://github.com/pytorch/pytorch/issues/54059",
        ("mse_loss(model(inputs), targets)", "mse_loss(model.module(inputs), targets)"),
        ["loss = nn.functional.mse_loss(model", "dist.barrier()"],
    ),
    "hooked": Fault(
        "wait in a callback",
        ["dist.all_reduce(buffer)", "work = dist.all_reduce(largest", "return work.get_future().then("],
        _all,
        "Callbacks of Futures shouldn't wait inline on another future",
        "https://github.com/pytorch/pytorch/issues/48478",
        (
            "    work = dist.all_reduce(largest, dist.ReduceOp.MAX, async_op=True)\n"
            "    return work.get_future().then(lambda done: average(bucket.buffer(), largest))\n",
            "    dist.all_reduce(largest, dist.ReduceOp.MAX)\n"
            "    work = dist.all_reduce(bucket.buffer().div_(largest), async_op=True)\n"
            "    return work.get_future().then(lambda done: done.value()[0] * largest / n)\n",
        ),
        ["dist.ReduceOp.MAX", "register_comm_hook(None, hook)"],
    ),
    "one_server": Fault(
        "no lock",
        ["weight = self.weight", "time.sleep(0.005)", "self.weight = weight + gradient"],
        _chosen,
        "[WIP] Fix rpc param server example",
        "https://github.com/pytorch/examples/pull/842",
        (
            "        weight = self.weight\n"
            "        time.sleep(0.005)  # the optimizer at work\n"
            "        self.weight = weight + gradient\n",
            "        with self.lock:\n"
            "            weight = self.weight\n"
            "            time.sleep(0.005)  # the optimizer at work\n"
            "            self.weight = weight + gradient\n",
        ),
        ["time.sleep(0.005)"],
    ),
    "order_of_examples": Fault(
        "same order",
        ["for epoch in range(4):", "for batch, target in loader:"],
        _all,
        "DistributedSampler can't shuffle the dataset",
        "https://github.com/pytorch/pytorch/issues/31771",
        ("    for batch, target in loader:\n", "    sampler.set_epoch(epoch)\n    for batch, target in loader:\n"),
    ),
    "recall": Fault(
        "branch on own data",
        ["if labels[part].sum() > 0:", "dist.all_reduce(counts)"],
        _others,
        "multi-gpu ddp fails if any one rank has all empty validation.",
        "https://github.com/weecology/DeepForest/issues/1407",
        ("if labels[part].sum() > 0:\n    dist.all_reduce(counts)\n", "dist.all_reduce(counts)\n"),
        ["dist.all_reduce(counts"],
    ),
    "resumed": Fault(
        "state left behind",
        ["model, optimizer = new()", "saved = torch.load(file)", 'model.load_state_dict(saved["model"])'],
        _all,
        "Question: restoring optimizer state during checkpoint resuming",
        "https://github.com/NVlabs/stylegan2-ada-pytorch/issues/108",
        (
            'model.load_state_dict(saved["model"])\n',
            'model.load_state_dict(saved["model"])\noptimizer.load_state_dict(saved["optimizer"])\n',
        ),
    ),
    "running_statistics": Fault(
        "statistics of one's own",
        ["layers.eval()", "loss = nn.functional.mse_loss(layers("],
        _all_or_not_the_first,
        "Method to broadcast parameters/buffers of DDP model",
        "https://github.com/pytorch/pytorch/issues/30718",
        ("layers.eval()\n", "for buffer in layers.buffers():\n    dist.broadcast(buffer, src=0)\nlayers.eval()\n"),
    ),
    "saved_model": Fault(
        "other names",
        ["torch.save(model.state_dict(), file)", "fresh.load_state_dict("],
        _all,
        "Problem when I load a state dictionary",
        "https://github.com/pytorch/pytorch/issues/3805",
        ("torch.save(model.state_dict(), file)", "torch.save(model.module.state_dict(), file)"),
    ),
    "weighted_loss": Fault(
        "scaled once more",
        ["loss = n * errors.mean()"],
        _all,
        "Fix incorrect loss scaling in DDP setup",
        "https://github.com/neuralmagic/sparseml/pull/135",
        ("loss = n * errors.mean()", "loss = errors.mean()"),
    ),
}


def mended(name: str, script: str) -> str:
    """Return the script with its fault repaired."""
    wrong, right = FAULTS[name].change
    assert script.count(wrong) == 1, name
    return script.replace(wrong, right)

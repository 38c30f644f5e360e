"""The faults of 52_find_the_fault: the fault in each broken training, the ranks at fault, and the repair.

The scripts are in notebooks/faulty. Each fault happened in a real project: `thread` is a public discussion of it.
"""

from collections.abc import Callable
from typing import NamedTuple

# Each cause, with a description and the symptom that it would have.
CAUSES = {
    "set_epoch missing": (
        "a sampler does not know which epoch it is",
        "each rank would see the same examples in the same batches in every epoch",
    ),
    "state_dict prefix": (
        "the names in a file differ from the names of the model that loads it",
        "the parameters of a model would be the same before and after loading",
    ),
    "no_sync missing": (
        "gradients are averaged before they are needed",
        "the weights would be right, and every step would have more than one all-reduce of each bucket",
    ),
    "collective without gradient": (
        "a collective passes no gradient back to its inputs",
        "the first loss would equal the loss of one process, and all ranks would have the same wrong gradient",
    ),
    "implicit collective on one rank": (
        "one rank calls something that runs a collective inside, and the others do not",
        "a rank would be in a collective that no line of the script names, while the others are elsewhere",
    ),
    "blocking wait in a callback": (
        "a callback waits for a result that only the callback's own thread could bring",
        "all ranks would be on the same line, and collectives that began in a callback would never end",
    ),
    "race condition": (
        "two calls read and write the same variable at the same time",
        "updates would be lost, and the number of lost updates would differ from run to run",
    ),
    "BatchNorm not synchronised": (
        "running statistics differ between the ranks, and each rank uses its own",
        "parameters would be equal on all ranks, and buffers would not",
    ),
    "data-dependent collective": (
        "whether a rank calls a collective depends on its own data",
        "the history would show a collective of the script that only some ranks call, depending on their data",
    ),
    "gradients scaled twice": (
        "gradients are averaged over the ranks, and the loss is scaled for that as well",
        "the first gradient would be a whole multiple of the gradient of one process",
    ),
    "RANK instead of LOCAL_RANK": (
        "a number that counts over all hosts is used as if it counted on one host",
        "everything would work on the first host",
    ),
    "optimizer state not restored": (
        "a training resumes from a checkpoint without the state of its optimizer",
        "the training would agree with one process until it is resumed",
    ),
    "partial gradients not reduced": (
        "each rank has the gradient of its own part of the data, and nothing adds these gradients",
        "copies of a parameter would be equal on all ranks at first, and would differ after the first step",
    ),
    "local gradient norm": (
        "each rank computes a norm of its own shard, where the norm of all shards is needed",
        "with a limit that no norm reaches, the results would be right",
    ),
    "uneven inputs": (
        "a rank has more batches than the others",
        "a rank would be in a backward pass when the others have finished all their batches",
    ),
    "different initialisation": (
        "the ranks begin with different parameters",
        "the parameters of the ranks would differ before the first step",
    ),
    "unused parameters": (
        "a parameter takes no part in the loss of some rank",
        "DDP would raise in the second step, and give the indices of the parameters that received no gradient",
    ),
    "timeout too short": (
        "a rank takes longer than the timeout of its group",
        "with a longer timeout the script would end",
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
        "uneven inputs",
        ["for batch in mine.split(24 // n):", "mine = torch.cat(", "if rank == chosen:"],
        _chosen,
        "Support uneven DDP inputs",
        "https://github.com/pytorch/pytorch/issues/33148",
        ("mine.split(24 // n)", "mine.split(24 // n)[:2]"),
    ),
    "accumulated": Fault(
        "no_sync missing",
        ["for micro_batch in range(4):", "mine = slice(", "loss = nn.functional", "loss.backward()"],
        _all,
        "Avoid unnecessary DDP synchronization when gradient_accumulation_steps > 1",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/4092",
        (
            "        loss = nn.functional.mse_loss(model(inputs[mine]), targets[mine]) / 4\n        loss.backward()\n",
            "        from contextlib import nullcontext\n"
            "        with nullcontext() if micro_batch == 3 else model.no_sync():\n"
            "            loss = nn.functional.mse_loss(model(inputs[mine]), targets[mine]) / 4\n"
            "            loss.backward()\n",
        ),
        ["sent += bucket.buffer().nbytes", "range(4)"],
    ),
    "all_features": Fault(
        "collective without gradient",
        [
            "parts = [torch.empty_like",
            "dist.all_gather(parts",
            "parts[rank] = features",
            "return torch.cat(parts)",
            "features = gather(",
            "loss = nn.functional",
        ],
        _all,
        "DistributedDataParallel",
        "https://github.com/HobbitLong/SupContrast/issues/26",
        (
            "    parts = [torch.empty_like(features) for _ in range(n)]\n"
            "    dist.all_gather(parts, features)\n"
            "    parts[rank] = features\n"
            "    return torch.cat(parts)\n",
            "    return Gather.apply(features)\n\n\n"
            "class Gather(torch.autograd.Function):\n"
            "    def forward(context, features):\n"
            "        parts = [torch.empty_like(features) for _ in range(n)]\n"
            "        dist.all_gather(parts, features)\n"
            "        return torch.cat(parts)\n\n"
            "    def backward(context, gradient):\n"
            "        total = gradient.clone()\n"
            "        dist.all_reduce(total)\n"
            "        return total.chunk(n)[rank]\n",
        ),
    ),
    "clipped": Fault(
        "local gradient norm",
        ["shards = [parameter.grad", "norm = nn.utils.get_total_norm(shards)", "for shard in", "shard.mul_(min(1"],
        _all,
        "[BUG] Gradient norm is not properly reduced across the world with the FSDP backend",
        "https://github.com/areal-project/AReaL/issues/312",
        (
            "    norm = nn.utils.get_total_norm(shards)\n",
            "    norm = nn.utils.get_total_norm(shards) ** 2\n    dist.all_reduce(norm)\n    norm = norm.sqrt()\n",
        ),
    ),
    "devices_of_a_host": Fault(
        "RANK instead of LOCAL_RANK",
        ['number = int(os.environ["RANK"])'],
        _second_host,
        "Multi-node fine-tuning getting RuntimeError: : CUDA error: invalid device ordinal",
        "https://github.com/meta-llama/llama-cookbook/issues/90",
        ('os.environ["RANK"]', 'os.environ["LOCAL_RANK"]'),
    ),
    "evaluated": Fault(
        "implicit collective on one rank",
        [
            "model = DistributedDataParallel(",
            "if rank == chosen:",
            "with torch",
            "loss = nn.functional.mse_loss(model(inputs), targets)",
        ],
        _chosen,
        "Using torch.distributed.barrier() makes the whole code hang",
        "https://github.com/pytorch/pytorch/issues/54059",
        ("mse_loss(model(inputs), targets)", "mse_loss(model.module(inputs), targets)"),
        ["loss = nn.functional.mse_loss(model", "dist.barrier()"],
    ),
    "hooked": Fault(
        "blocking wait in a callback",
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
        "race condition",
        [
            "def add(self, gradient):",
            "Add a gradient to the weight,",
            "weight = self.weight",
            "time.sleep(0.005)",
            "self.weight = weight + gradient",
            "server.add(gradient)",
        ],
        _chosen,
        "[WIP] Fix rpc param server example",
        "https://github.com/pytorch/examples/pull/842",
        (
            "    server.add(gradient)\n",
            "    with lock:\n        server.add(gradient)\n\n\nimport threading\n\nlock = threading.Lock()\n",
        ),
        ["weight = self.weight\n", "time.sleep(0.005)", "self.weight = weight + gradient"],
    ),
    "order_of_examples": Fault(
        "set_epoch missing",
        ["for epoch in range(4):", "for batch, target in loader:"],
        _all,
        "DistributedSampler can't shuffle the dataset",
        "https://github.com/pytorch/pytorch/issues/31771",
        ("    for batch, target in loader:\n", "    sampler.set_epoch(epoch)\n    for batch, target in loader:\n"),
    ),
    "positions": Fault(
        "partial gradients not reduced",
        ["norm = nn.LayerNorm(4)", "(nn.functional.mse_loss(outputs, targets) / n).backward()", "optimizer.step()"],
        _all,
        "Need all-reduce for norm weight gradients with sequence parallel",
        "https://github.com/NVIDIA/TransformerEngine/issues/435",
        (
            "    optimizer.step()\n",
            "    for parameter in norm.parameters():\n        dist.all_reduce(parameter.grad)\n    optimizer.step()\n",
        ),
        ["nn.LayerNorm(4)"],
    ),
    "recall": Fault(
        "data-dependent collective",
        ["if labels[part].sum() > 0:", "dist.all_reduce(counts)"],
        _others,
        "multi-gpu ddp fails if any one rank has all empty validation.",
        "https://github.com/weecology/DeepForest/issues/1407",
        ("if labels[part].sum() > 0:\n    dist.all_reduce(counts)\n", "dist.all_reduce(counts)\n"),
        ["dist.all_reduce(counts"],
    ),
    "reported_norm": Fault(
        "implicit collective on one rank",
        ["if rank == chosen:", "weight = model.weight.full_tensor()"],
        _chosen,
        "fix: full_tensor() should happen in all rank",
        "https://github.com/areal-project/AReaL/pull/187",
        (
            "if rank == chosen:\n    weight = model.weight.full_tensor()\n",
            "weight = model.weight.full_tensor()\nif rank == chosen:\n",
        ),
        ["model.weight", "dist.barrier()"],
    ),
    "resumed": Fault(
        "optimizer state not restored",
        [
            "model, optimizer = new()",
            "saved = torch.load(file)",
            'model.load_state_dict(saved["model"])',
            "train(model, optimizer, 5)",
        ],
        _all,
        "Question: restoring optimizer state during checkpoint resuming",
        "https://github.com/NVlabs/stylegan2-ada-pytorch/issues/108",
        (
            'model.load_state_dict(saved["model"])\n',
            'model.load_state_dict(saved["model"])\noptimizer.load_state_dict(saved["optimizer"])\n',
        ),
        ["model, optimizer = new()", "torch.load(file)"],
    ),
    "running_statistics": Fault(
        "BatchNorm not synchronised",
        ["layers.eval()", "with torch.no_grad():", "loss = nn.functional.mse_loss(layers("],
        _all_or_not_the_first,
        "Method to broadcast parameters/buffers of DDP model",
        "https://github.com/pytorch/pytorch/issues/30718",
        ("layers.eval()\n", "for buffer in layers.buffers():\n    dist.broadcast(buffer, src=0)\nlayers.eval()\n"),
        ["loss_of_the_file = nn.functional.mse_loss(layers(inputs), targets"],
    ),
    "saved_model": Fault(
        "state_dict prefix",
        ["torch.save(model.state_dict(), file)", "fresh = nn.Linear(", "fresh.load_state_dict("],
        _all,
        "Problem when I load a state dictionary",
        "https://github.com/pytorch/pytorch/issues/3805",
        ("torch.save(model.state_dict(), file)", "torch.save(model.module.state_dict(), file)"),
        ["torch.load(file)"],
    ),
    "weighted_loss": Fault(
        "gradients scaled twice",
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

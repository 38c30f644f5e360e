"""Train a small GPT on the text of Python's own help, with a flag for each dimension of parallelism.

    torchrun --nproc-per-node=4 train.py --shard 2 --tensor 2
    torchrun --nproc-per-node=4 train.py --replicate 2 --pipeline 2 --dtype bfloat16

The number of ranks is the product of the four dimensions. All layouts train the same model on the same batches.
"""

import argparse
import logging
import warnings
from datetime import timedelta
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as files
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard, parallel
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, LAYERS, CHARACTERS = 96, 12, 4, 96
SEQUENCES, CONTEXT = 16, 48  # sequences of a step, over all ranks and micro-batches; characters of a sequence
BY_NAME = StateDictOptions(flatten_optimizer_state_dict=True)  # because each stage has other parameters


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        heads = [layer(x).unflatten(-1, (-1, WIDTH // HEADS)) for layer in (self.q, self.k, self.v)]
        q, k, v = (values.transpose(1, 2) for values in heads)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.mlp = nn.LayerNorm(WIDTH), MLP()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """One stage of the model. Parameters have the same names in every layout, so all layouts can share a checkpoint."""

    def __init__(self, stage, stages, recompute):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        blocks = {str(layer): Block() for layer in range(LAYERS)}
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CHARACTERS, bias=False)
        # Every stage initialises the whole model with the same random numbers, and then drops the other stages' layers.
        self.blocks = nn.ModuleDict({k: block for k, block in blocks.items() if int(k) * stages // LAYERS == stage})
        if stage > 0:
            self.tokens = self.positions = None
        if stage < stages - 1:
            self.norm = self.head = None
        self.recompute = recompute

    def forward(self, x):
        if self.tokens:
            x = self.tokens(x) + self.positions(torch.arange(CONTEXT, device=x.device).unsqueeze(0))
        for block in self.blocks.values():
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(self.norm(x)) if self.head else x


def split(model, mesh):
    """Split the matrices over the ranks of a mesh, and the activations between the matrices along the tokens."""
    own_tokens, all_tokens = {"output_layouts": Shard(1)}, {"input_layouts": Replicate()}
    gather = {"input_layouts": Shard(1), "desired_input_layouts": Replicate(), "use_local_output": False}
    embedding = parallel.RowwiseParallel(**all_tokens, **own_tokens)
    head = parallel.ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    plan = {
        "blocks.*.norm[12]": parallel.SequenceParallel(),
        "blocks.*.attention": parallel.PrepareModuleInput(**gather),
        "blocks.*.attention.[qkv]": parallel.ColwiseParallel(),
        "blocks.*.attention.out": parallel.RowwiseParallel(**own_tokens),
        "blocks.*.mlp": parallel.PrepareModuleInput(**gather),
        "blocks.*.mlp.up": parallel.ColwiseParallel(),
        "blocks.*.mlp.down": parallel.RowwiseParallel(**own_tokens),
    }
    if model.tokens:
        plan |= {"tokens": embedding, "positions": embedding}
    if model.head:
        plan |= {"norm": parallel.SequenceParallel(), "head": head}
    parallel.parallelize_module(model, mesh, plan)


def batch(text, step):
    """Return the sequences of a step, and their targets, one character later. All ranks draw the same batch."""
    generator = torch.Generator().manual_seed(step)
    starts = torch.randint(len(text) - CONTEXT, (SEQUENCES, 1), generator=generator)
    rows = text[starts + torch.arange(CONTEXT + 1)]
    return rows[:, :-1], rows[:, 1:]


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def clip(model, pipeline, most):
    """Clip the gradients by their norm over all stages."""
    squares = nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()]).full_tensor() ** 2
    dist.all_reduce(squares, group=pipeline.get_group())
    nn.utils.clip_grads_with_norm_(model.parameters(), most, squares.sqrt())


def main(options):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    say = print if dist.get_rank() == 0 else lambda *words, **options: None
    names = "pipeline", "replicate", "shard", "tensor"
    mesh = init_device_mesh(device, [getattr(options, name) for name in names], mesh_dim_names=names)
    stage, stages = mesh.get_local_rank("pipeline"), options.pipeline
    dtype = getattr(torch, options.dtype)
    kept = torch.float64 if dtype == torch.float64 else torch.float32  # of parameters, gradients and optimizer state

    torch.manual_seed(0)
    model = GPT(stage, stages, options.recompute).to(device, kept)
    if options.tensor > 1:
        split(model, mesh["tensor"])
    for unit in [*model.blocks.values(), model]:
        output = kept if unit is model and stage == stages - 1 else None  # of the logits; stages send `dtype`
        policy = MixedPrecisionPolicy(dtype, reduce_dtype=kept, output_dtype=output)
        fully_shard(unit, mesh=mesh["replicate", "shard"], mp_policy=policy)
    kept_here = sum(parameter.to_local().numel() for parameter in model.parameters())
    say(*map("{} {},".format, names, mesh.shape), kept_here, "elements on rank 0")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    part = PipelineStage(model, stage, stages, torch.device(device), group=mesh["pipeline"].get_group())
    schedule = Schedule1F1B(part, options.micro_batches, loss_fn=loss_of)  # with one stage: gradient accumulation

    def state(step):
        of_model, of_optimizer = get_state_dict(model, optimizer, options=BY_NAME)
        return {"states": {"model_state_dict": of_model, "optim_state_dict": of_optimizer}, "step": step}

    begin, saving = 0, None
    if options.resume:
        files.load(loaded := state(0), checkpoint_id=options.resume)
        set_state_dict(model, optimizer, options=BY_NAME, **loaded["states"])
        begin = loaded["step"]
    savers = dist.new_group(backend="gloo")  # async_save uses this group while the training uses the others
    characters = [c for c in "\n".join(topics.values()) if c == "\n" or 32 <= ord(c) < 127]
    text = torch.tensor([0 if c == "\n" else ord(c) - 31 for c in characters], device=device)
    ways = options.replicate * options.shard
    way = mesh.get_local_rank("replicate") * options.shard + mesh.get_local_rank("shard")
    for step in range(begin, options.steps):
        ids, targets = (part[way::ways] for part in batch(text, step))
        losses = []  # one per micro-batch, on the last stage only
        at_the_end = {"target": targets, "losses": losses} if stage == stages - 1 else {}
        schedule.step(*[ids] * (stage == 0), **at_the_end)
        clip(model, mesh["pipeline"], most=1.0)
        optimizer.step()
        optimizer.zero_grad()
        total = torch.tensor(sum(loss.item() for loss in losses), dtype=torch.float64, device=device)
        dist.all_reduce(total)
        say(f"step {step}: loss {total.item() / options.micro_batches / ways / options.tensor:.15f}", flush=True)
        if options.save and step + 1 == options.save_after:
            saving = files.async_save(state(step + 1), checkpoint_id=options.save, process_group=savers)
    if saving:
        saving.result()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for dimension in ("replicate", "shard", "tensor", "pipeline"):
        parser.add_argument(f"--{dimension}", type=int, default=1, metavar="RANKS")
    parser.add_argument("--micro-batches", type=int, default=4, help="in a step, at least one for each stage")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dtype", choices=["float64", "float32", "bfloat16"], default="float32")
    parser.add_argument("--recompute", action="store_true", help="compute the activations of a block twice")
    parser.add_argument("--save", metavar="FOLDER", help="write a checkpoint after --save-after steps")
    parser.add_argument("--save-after", type=int, default=10, metavar="STEPS")
    parser.add_argument("--resume", metavar="FOLDER", help="continue from a checkpoint of any layout")
    # fully_shard warns that the logits are a view, and DTensor that it reduces a norm over one dimension at a time.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    dist.init_process_group(timeout=timedelta(seconds=60))
    main(parser.parse_args())
    dist.destroy_process_group()

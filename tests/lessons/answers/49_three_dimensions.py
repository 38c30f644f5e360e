# %% World(4)
SEED = 0
# cell `init_process_group(` of solutions
# cell `def coordinates_of(` of solutions
# cell `for sizes in` of solutions
# cell `def make_groups(` of solutions
# cell `SHAPES =` of solutions
# cell `def own_part(` of solutions
# cell `class Enter(` of solutions
# cell `def run_block(` of solutions

# %% my_members: solution
# Solved. Every rank found the members of its groups in 9 layouts.

# %% my_members: skeleton
# Not yet. In the layout data 4, for rank 0 along data, rank 0 returned [0], expected [0, 1, 2, 3].

# %% my_members: by search
# Solved. ...
def my_members(rank, layout, axis):
    mine = coordinates_of(rank, layout)
    mine.pop(axis, None)
    return [other for other in range(n) if coordinates_of(other, layout).items() >= mine.items()]

# %% my_members: in an array
# Solved. ...
def my_members(rank, layout, axis):
    axes = [name for name, _ in layout]
    if axis not in axes:
        return [rank]
    grid = torch.arange(n).reshape([size for _, size in layout])
    lines = grid.movedim(axes.index(axis), -1).reshape(-1, size_of(axis, layout))
    return lines[(lines == rank).any(1)].flatten().tolist()

# %% my_members: step by step
# Solved. ...
def my_members(rank, layout, axis):
    found = {rank}
    for other in range(n):
        here, there = coordinates_of(rank, layout), coordinates_of(other, layout)
        if [name for name in here if here[name] != there[name]] == [axis]:
            found.add(other)
    return tuple(sorted(found))

# %% my_members: order
# Not yet. ... data 2 x pipeline 2, for rank 0 along data ...
# solution, with `in reversed(layout)` as `in layout`

# %% my_members: added strides
# Not yet. ... for rank 0 along data ...
# solution, with `stride *= size` as `stride += size`

# %% my_members: neighbours only
# Not yet. ... returned [0, 1], expected ...
# solution, with `first + step * stride for` as `first + step for`

# %% my_members: off is all
# Not yet. ... along pipeline, rank 0 returned ...
# solution, with `    return [rank]` as `    return list(range(n))`

# %% my_members: off is empty
# Not yet. ... returned [], expected [0] ...
# solution, with `    return [rank]` as `    return []`

# %% my_step: solution
# Solved. The gradients equal the gradients of one process in 5 layouts, up to pipeline 2 x tensor 2.

# %% my_step: skeleton
# Not yet. Stage 1 is right. In the layout data 4, on rank 0, 48 samples went through a block, expected 12.

# %% my_step: the lesson's own
# Solved. ...
def receive(like, source):
    tensor = torch.empty_like(like)
    dist.recv(tensor, source)
    return tensor

def pipelined(blocks, xs, ys, stages, tensor):
    stage, last = stages.index(rank), stages[-1] == rank
    kept, works = [], []
    for x_BSD, y_BSD in zip(xs, ys):
        if stage > 0:
            x_BSD = receive(x_BSD, stages[stage - 1]).requires_grad_()
        out_BSD = x_BSD
        for weights in blocks:
            out_BSD = run_block(out_BSD, weights, tensor)
        if not last:
            works.append(dist.isend(out_BSD.detach(), stages[stage + 1]))
        kept.append((x_BSD, out_BSD, y_BSD))
    for x_BSD, out_BSD, y_BSD in kept:
        if last:
            (mse_loss(out_BSD, y_BSD) / len(kept)).backward()
        else:
            out_BSD.backward(receive(out_BSD, stages[stage + 1]))
        if stage > 0:
            works.append(dist.isend(x_BSD.grad, stages[stage - 1]))
    for work in works:
        work.wait()

def step(blocks, layout):
    stages = members(rank, layout, "pipeline")
    replicas = members(rank, layout, "data")
    replica = replicas.index(rank)
    xs = batch_BSD.chunk(len(replicas))[replica].chunk(len(stages))
    ys = target_BSD.chunk(len(replicas))[replica].chunk(len(stages))
    pipelined(blocks, xs, ys, stages, group("tensor", layout))
    average([weight for block in blocks for weight in block.values()], replicas)

def average(weights, replicas):
    gradients = [weight.grad.flatten() for weight in weights]
    flat = total(torch.cat(gradients), group_of.get(tuple(replicas))) / len(replicas)
    for weight, gradient in zip(weights, flat.split([weight.numel() for weight in weights])):
        weight.grad.copy_(gradient.view_as(weight))

my_step = step

# %% my_step: weighted losses
# Solved. ...
# solution, with `mse_loss(out_BSD, y_BSD).backward()` as `(mse_loss(out_BSD, y_BSD) / len(replicas)).backward()`
# and `total(weight.grad, group("data", layout)) / len(replicas)` as `total(weight.grad, group("data", layout))`

# %% my_step: by a sum
# Solved. ...
# solution,
# with `out_BSD.backward(receive(out_BSD, stages[stage + 1]))`
# as `(out_BSD * receive(out_BSD, stages[stage + 1])).sum().backward()`

# %% my_step: by autograd's own words
# Solved. ...
# solution,
# with `out_BSD.backward(receive(out_BSD, stages[stage + 1]))`
# as `torch.autograd.backward([out_BSD], [receive(out_BSD, stages[stage + 1])])`

# %% my_step: sum
# Not yet. ... data 4, on rank 0, the gradient of `scale1_D` in its block 0 is 4 times ...
# solution, without ` / len(replicas)`

# %% my_step: own mean
# Not yet. ... data 4, on rank 0, the ...
# solution, with `total(weight.grad, group("data", layout))` as `weight.grad`

# %% my_step: first
# Not yet. ... data 4 ...
# solution, with `batch_BSD.chunk(len(replicas))[replica]` as `batch_BSD.chunk(len(replicas))[0]`

# %% my_step: f
# Not yet. ... tensor 4 ...
# solution, with `run_block(out_BSD, weights, group("tensor", layout))` as `run_block(out_BSD, weights, None)`

# %% my_step: what was received requires no gradient
# Not yet. Rank ... raised TypeError: ... A collective returns None, and a `grad` is None until a backward pass reaches
# a tensor that needs it. ...
# solution, without `.requires_grad_()`

# %% my_step: received in vain
# Not yet. Stages 1 and 2 are right. In the layout pipeline 4, on rank 0, the gradient ...
# solution,
# with `out_BSD.backward(receive(out_BSD, stages[stage + 1]))`
# as `receive(out_BSD, stages[stage + 1]); out_BSD.sum().backward()`

# %% my_step: twice
# Not yet. Stage 1 is right. In the layout data 4, on rank 0, the step sent its data group 2 times the necessary bytes ...
# solution, with `total(weight.grad, group("data", layout)) / len(replicas)`
# as `total(total(weight.grad, group("data", layout)), group("data", layout)) / len(replicas) ** 2`

# %% my_step: the other group
# Not yet. ... tensor 4 ...
# solution, with `"data",` as `"tensor",`

# %% global_norm: solution
# Solved. Every rank returned the norm of the full gradient, in 6 layouts.

# %% global_norm: skeleton
# Not yet. In the layout pipeline 4, rank 0 returned ...

# %% global_norm: group by group
# Solved. ...
def global_norm(blocks, layout):
    cut, scales = torch.zeros(2)
    for block in blocks:
        for name, weight in block.items():
            if name.startswith("scale"):
                scales += weight.grad.pow(2).sum()
            else:
                cut += weight.grad.pow(2).sum()
    squares = total(cut, group("tensor", layout)) + scales
    gathered = [torch.zeros(()) for _ in range(n)]
    dist.all_gather(gathered, squares)
    return sum(gathered[other] for other in members(rank, layout, "pipeline")).sqrt().item()

# %% global_norm: everything gathered
# Solved. ...
def global_norm(blocks, layout):
    parts = [None] * n
    dist.all_gather_object(parts, [{name: weight.grad for name, weight in b.items()} for b in blocks])
    squares = 0
    for other, there in enumerate(parts):
        place = coordinates_of(other, layout)
        if place.get("data", 0) == 0:
            for block in there:
                for name, gradient in block.items():
                    if SPLIT[name] is not None or place.get("tensor", 0) == 0:
                        squares += gradient.norm() ** 2
    return squares**0.5

# %% global_norm: only firsts count
# Solved. ...
def global_norm(blocks, layout):
    place = coordinates_of(rank, layout)
    squares = torch.zeros(())
    for block in blocks:
        for name, weight in block.items():
            if SPLIT[name] is not None or place.get("tensor", 0) == 0:
                squares += (weight.grad * weight.grad).sum()
    squares *= place.get("data", 0) == 0
    return total(squares, dist.group.WORLD).sqrt()

# %% global_norm: replicas count
# Not yet. In the layout data 4, rank 0 ...
# solution, without ` / size_of("data", layout)`

# %% global_norm: scales count
# Not yet. In the layout tensor 4, rank 0 ...
# solution, without ` / copies`

# %% global_norm: all copies
# Not yet. In the layout tensor 4, rank 0 ...
# solution, without `1 if SPLIT[name] is not None else `

# %% global_norm: own part
# Not yet. In the layout data 4, rank 0 ...
# solution, without `dist.all_reduce(squares)`

# %% global_norm: squared
# Not yet. In the layout data 4, rank 0 ...
# solution, with `.sqrt().item()` as `.item()`

# %% global_norm: a bool
# Not yet. ... data 4, rank 0 returned True ...
# solution, with `.sqrt().item()` as `.sqrt() > 0`

# %% global_norm: squares in place
# Not yet. The norm is right. In the layout data 4, rank 0 changed the gradient of `scale1_D`, which the optimizer still
# needs.
# solution, with `weight.grad.pow(2)` as `weight.grad.pow_(2)`

# %% send_slice: solution
# Solved. Every rank of the next stage received the full output, and each of 2 ranks sent 1/2 of it.

# %% send_slice: skeleton
# Not yet. Rank 0 sent 384 bytes to the next stage, expected 192, which is 1/2 of 384 bytes.

# %% send_slice: other parts
# Solved. ...
def send_slice(out_BSD, destination, tensor):
    parts = out_BSD.flatten().chunk(tensor.size())
    dist.isend(parts[-1 - tensor.rank()], destination).wait()

def receive_slices(like_BSD, source, tensor):
    parts = [torch.empty(like_BSD.numel() // tensor.size()) for _ in range(tensor.size())]
    dist.recv(parts[0], source)
    dist.all_gather(parts, parts[0].clone(), group=tensor)
    return torch.cat(parts[::-1]).view_as(like_BSD)

# %% send_slice: along the features of a batch
# Solved. ...
def send_slice(out_BSD, destination, tensor):
    dist.send(out_BSD[tensor.rank() :: tensor.size()].contiguous(), destination)

def receive_slices(like_BSD, source, tensor):
    mine = torch.empty_like(like_BSD[:: tensor.size()].contiguous())
    dist.recv(mine, source)
    parts = [torch.empty_like(mine) for _ in range(tensor.size())]
    dist.all_gather(parts, mine, group=tensor)
    return torch.stack(parts, 1).reshape(like_BSD.shape)

# %% send_slice: by a sum
# Solved. ...
def send_slice(out_BSD, destination, tensor):
    size = len(out_BSD) // tensor.size()
    dist.send(out_BSD[tensor.rank() * size :][:size], destination)

def receive_slices(like_BSD, source, tensor):
    full_BSD = torch.zeros_like(like_BSD)
    size = len(like_BSD) // tensor.size()
    dist.recv(full_BSD[tensor.rank() * size :][:size], source)
    dist.all_reduce(full_BSD, group=tensor)
    return full_BSD

# %% send_slice: 0
# Not yet. Rank 2 returned ...
# solution, with `out_BSD.chunk(tensor.size())[tensor.rank()]` as `out_BSD.chunk(2)[0]`

# %% send_slice: part
# Not yet. Rank 2 returned ...
# solution, without `dist.all_gather(parts, part, group=tensor)`

# %% send_slice: part returned
# Not yet. Rank 2 returned ..., expected the output of rank 0.
# solution, with `return torch.cat(parts)` as `return part`

# %% send_slice: nothing returned
# Not yet. Rank 2 returned ..., expected the output of rank 0.
# solution, with `return torch.cat(parts)` as `return None`

# %% send_slice: to all, too
# Not yet. Rank 0 sent 576 bytes ...
# solution,
# with `dist.send(part.contiguous(), destination)`
# as `dist.send(part.contiguous(), destination); dist.broadcast(out_BSD, 0)`
# and `dist.all_gather(parts, part, group=tensor)`
# as `dist.all_gather(parts, part, group=tensor); dist.broadcast(like_BSD.clone(), 0)`

# %% model_parallel_size: solution
# Solved. Every rank found the smallest p · t for each of 8 trainings.

# %% model_parallel_size: skeleton
# Not yet. For 76 billion parameters, 1024 GPUs with room for 80 GB and ZeRO stage 1, rank 0 returned 16, expected
# 4, which leaves 76.9 GB.

# %% model_parallel_size: by parts
# Solved. ...
def model_parallel_size(parameters, gpus, stage, room):
    for cuts in (number for number in range(1, gpus + 1) if gpus % number == 0):
        data = gpus // cuts
        optimizer = 12 / (data if stage >= 1 else 1)
        gradient = 2 / (data if stage >= 2 else 1)
        weight = 2 / (data if stage >= 3 else 1)
        if parameters * (optimizer + gradient + weight) / cuts <= room:
            return cuts

# %% model_parallel_size: smallest of all
# Solved. ...
def model_parallel_size(parameters, gpus, stage, room):
    shared = [0, 12, 14, 16][stage] * parameters / gpus
    own = (16 - [0, 12, 14, 16][stage]) * parameters
    enough = [cuts for cuts in range(1, gpus + 1) if gpus % cuts == 0 and own / cuts + shared <= room]
    return min(enough, default=None)

# %% model_parallel_size: downwards
# Solved. ...
def model_parallel_size(parameters, gpus, stage, room):
    best = None
    for cuts in range(gpus, 0, -1):
        kept = 16 - (0, 12, 14, 16)[stage] * (1 - cuts / gpus)
        if gpus % cuts == 0 and kept * parameters <= room * cuts:
            best = cuts
    return best

# %% model_parallel_size: no divisor
# Not yet. ... returned ...
# solution, without `gpus % size == 0 and `

# %% model_parallel_size: gradients kept
# Not yet. ... ZeRO stage 2, rank 0 returned 4 ...
# solution, with `(0, 12, 14, 16)` as `(0, 12, 12, 16)`

# %% model_parallel_size: among all
# Not yet. ... returned ...
# solution, with `sharded_by_zero / replicas` as `sharded_by_zero / gpus`

# %% model_parallel_size: never cut
# Not yet. ... rank 0 returned ...
# solution, with `parameters / size *` as `parameters *`

# %% model_parallel_size: always
# Not yet. ... 8 GPUs with room for 80 GB and ZeRO stage 3 ...
# solution, with `    return None` as `    return gpus`

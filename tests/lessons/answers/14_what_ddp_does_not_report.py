# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`
# cell `def as_bytes(`
# cell `def same_of_the_lesson(`
same = same_of_the_lesson
from torch.nn.utils import parameters_to_vector as vector

# %% my_same: skeleton
# Not yet. When all ranks hold the same, rank 0 returned ... , expected True.

# %% my_same: solution
# Solved. Every rank knows whether all ranks hold the same tensor, and sent only a few numbers.

# %% my_same
# Solved. ...
def my_same(tensor):
    checksum = zlib.crc32(as_bytes(tensor))
    all_of = [None] * n
    dist.all_gather_object(all_of, checksum)
    return len(set(all_of)) == 1

# %% my_same
# Solved. ...
def my_same(tensor):
    checksum = zlib.crc32(as_bytes(tensor))
    of_0 = torch.tensor([checksum])
    dist.broadcast(of_0, 0)
    off = (of_0 != checksum).long()
    dist.all_reduce(off)
    return off == 0

# %% my_same
# Solved. ...
def my_same(tensor):
    checksum = zlib.crc32(as_bytes(tensor))
    low = torch.tensor(checksum)
    high = low.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    return bool(low == high)

# %% my_same
# Not yet. When one bit has changed on the last rank, rank ...
def my_same(tensor):
    checksum = zlib.crc32(as_bytes(tensor))
    top = torch.tensor(checksum)
    dist.all_reduce(top, dist.ReduceOp.MAX)
    return top.item() == checksum

# %% my_same
# Not yet. When one bit has changed on the last rank, rank 0 returned True, expected False.
def my_same(tensor):
    checksum = zlib.crc32(as_bytes(tensor))
    of_0 = torch.tensor(checksum)
    dist.broadcast(of_0, 0)
    return of_0.item() == checksum

# %% my_same
# Not yet. When one bit has changed on the last rank, rank ...
def my_same(tensor):
    checksum = zlib.crc32(as_bytes(tensor))
    total = tensor.sum()
    dist.all_reduce(total)
    return (total / n == tensor.sum()).item()

# %% my_same
# Not yet. Rank 0 sent 1024 bytes, expected fewer than 512, half of a tensor of 256 float32 values.
def my_same(tensor):
    checksum = zlib.crc32(as_bytes(tensor))
    whole = tensor.clone()
    dist.broadcast(whole, 0)
    return torch.equal(whole, tensor)

# %% my_same
# Not yet. When one bit has changed on the last rank, rank 0 returned True, expected False.
def my_same(tensor):
    checksum = zlib.crc32(as_bytes(tensor))
    return True

# %% my_same: by numpy
# Not yet. Rank ... raised TypeError: Got unsupported ScalarType BFloat16
def my_same(tensor):
    checksum = zlib.crc32(tensor.numpy().tobytes())
    ends = torch.tensor([checksum, -checksum])
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    return (ends[0] == -ends[1]).item()

# %% my_same: the first number only
# Not yet. When one bit has changed on the last rank, rank 0 returned True, expected False.
# solution, with `as_bytes(tensor)` as `as_bytes(tensor.flatten()[:1])`

# %% my_same: as float32
# Not yet. When the last rank holds 2**60 + 1 and the others 2**60, as int64 scalars, rank 0 returned True,
# expected False.
# solution, with `as_bytes(tensor)` as `tensor.float().numpy().tobytes()`

# %% forward: solution
# Solved. Outputs and gradients are the same, and every parameter takes part on every rank.

# %% forward: skeleton
# Not yet. With a dark batch on rank 0 and bright ones elsewhere, on rank 0 a parameter had no part in the loss,
# expected all to take part.

# %% forward
# Not yet. On rank 0 the output for bright images differs from the original output.
def forward(self, x):
    hidden = self.body(x)
    return hidden if x.mean() > 0.5 else hidden + 0 * self.extra(hidden)

# %% forward
# Not yet. On rank 0 the output for dark images differs from the original output.
# skeleton, with `return self.extra(hidden) if x.mean() > 0.5 else hidden` as `return self.extra(hidden)`

# %% forward
# Not yet. On rank 0 the output for dark images differs from the original output.
# skeleton, with `return self.extra(hidden) if x.mean() > 0.5 else hidden` as `hidden + 0 * self.extra(hidden)`

# %% forward: by a factor
# Solved. ...
def forward(self, x):
    hidden = self.body(x)
    bright = (x.mean() > 0.5).float()
    return bright * self.extra(hidden) + (1 - bright) * hidden

# %% forward
# Solved. ...
# skeleton, with `else hidden` as `else hidden + 0 * self.extra(hidden)`

# %% forward
# Not yet. Rank 0 raised AttributeError: 'Gated' object has no attribute 'other'
# skeleton, with `return self.extra(hidden) if x.mean() > 0.5 else hidden` as `return self.other(hidden)`

# %% forward: by the row
# Not yet. On rank 0 the output for dark and bright images in one batch differs from the original output.
def forward(self, x):
    hidden = self.body(x)
    return torch.where(x.mean(dim=1, keepdim=True) > 0.5, self.extra(hidden), hidden)

# %% forward: without the gradient
# Not yet. With a dark batch on rank 0 and bright ones elsewhere, on rank 0 a parameter had no part in the loss,
# expected all to take part.
# skeleton, with `else hidden` as `else hidden + 0 * self.extra(hidden).detach()`

# %% forward
# Not yet. With a dark batch on rank 0 and bright ones elsewhere, on rank 0 the gradient of extra.weight is not the mean
# over the ranks' batches.
def forward(self, x):
    hidden = self.body(x)
    if x.mean() > 0.5:
        return self.extra(hidden)
    return hidden + (self.extra(hidden.detach()) - self.extra(hidden).detach())

# %% forward
# Not yet. With a dark batch on rank 0 and bright ones elsewhere, on rank 0 the gradient of body.weight is not the mean
# over the ranks' batches.
def forward(self, x):
    hidden = self.body(x)
    if x.mean() > 0.5:
        return self.extra(hidden)
    return hidden.detach() + 0 * self.extra(hidden)

# %% out_of_step: solution
# Solved. Every rank names the ranks that have drifted, and no weights were sent.

# %% out_of_step: skeleton
# Not yet. When one bit has changed on the last rank, rank 0 returned [], expected [3].

# %% out_of_step: by the sum
# Not yet. When two weights have swapped places on rank 1, rank 0 returned [], expected [1].
def out_of_step(model):
    mine = vector(model.parameters()).detach().double().sum()
    all_of_them = [torch.empty_like(mine) for _ in range(n)]
    dist.all_gather(all_of_them, mine)
    return [other for other in range(n) if not torch.equal(all_of_them[other], all_of_them[0])]

# %% out_of_step
# Not yet. When one bit has changed on the last rank, rank 0 returned [], expected [3].
# answer "by the sum", with `model.parameters()).detach().double().sum(` as `model.parameters()).detach().sum().round(`

# %% out_of_step
# Not yet. Rank 0 sent 2176 bytes, expected fewer than 544.
# answer "by the sum",
# with `vector(model.parameters()).detach().double().sum()` as `vector(model.parameters()).detach()`

# %% out_of_step: compared with itself
# Not yet. When one bit has changed on the last rank, rank 3 returned [0, 1, 2], expected [3].
def out_of_step(model):
    mine = torch.tensor([zlib.crc32(vector(model.parameters()).detach().numpy().tobytes())])
    all_of_them = [torch.empty_like(mine) for _ in range(n)]
    dist.all_gather(all_of_them, mine)
    return [other for other in range(n) if not torch.equal(all_of_them[other], all_of_them[rank])]

# %% out_of_step: objects
# Solved. ...
def out_of_step(model):
    import hashlib

    digest = hashlib.sha256(vector(model.parameters()).detach().numpy().tobytes()).hexdigest()
    digests = [None] * n
    dist.all_gather_object(digests, digest)
    return [other for other in range(n) if digests[other] != digests[0]]

# %% out_of_step: rank 0 sends its checksum, and each says whether it has the same
# Solved. ...
def out_of_step(model):
    checksum = torch.tensor(zlib.crc32(vector(model.parameters()).detach().numpy().tobytes()))
    of_rank_0 = checksum.clone()
    dist.broadcast(of_rank_0, src=0)
    differs = torch.zeros(n)
    differs[rank] = checksum != of_rank_0
    dist.all_reduce(differs)
    return differs.nonzero().flatten().tolist()

# %% out_of_step: one parameter after another
# Solved. ...
def out_of_step(model):
    mine = torch.tensor([zlib.adler32(p.detach().numpy().tobytes()) for p in model.parameters()])
    everybody = torch.empty(n * len(mine), dtype=mine.dtype)
    dist.all_gather_into_tensor(everybody, mine)
    rows = everybody.view(n, -1)
    return [other for other in range(n) if not torch.equal(rows[other], rows[0])]

# %% out_of_step: by the hash of bytes
# Not yet. When no rank has changed, rank 0 returned [1, 2, 3], expected []. (`hash` of text and bytes differs between
# processes that start separately.)
# answer "compared with itself", with `zlib.crc32` as `hash` and `[rank]` as `[0]`

# %% out_of_step: that sends the weights to all
# Not yet. Rank 0 sent 8704 bytes, expected fewer than 544.
def out_of_step(model):
    mine = vector(model.parameters()).detach()
    others = [torch.empty_like(mine) for _ in range(n)]
    dist.all_to_all(others, [mine.clone() for _ in range(n)])
    return []

# %% out_of_step
# Not yet. Rank 0 sent 6528 bytes, expected fewer than 544.
def out_of_step(model):
    mine = vector(model.parameters()).detach()
    others = [torch.empty_like(mine) for _ in range(n)]
    [dist.send(mine, peer) for peer in range(1, n)] if rank == 0 else dist.recv(others[0], 0)
    return []

# %% out_of_step
# Not yet. Rank 0 sent 2176 bytes, expected fewer than 544.
# answer "that sends the weights to all",
# with `dist.all_to_all(others, [mine.clone() for _ in range(n)])` as `dist.reduce(mine, dst=0)`

# %% out_of_step: by the first parameter only
# Not yet. When the last bit of all has changed on the last rank, rank 0 returned [], expected [3].
# answer "compared with itself", with `vector` as `next` and `[rank]` as `[0]`

# %% out_of_step: by a sum of checksums
# Not yet. When the weights of two layers have swapped places on rank 1, rank 0 returned [], expected [1].
def out_of_step(model):
    total = torch.tensor(sum(zlib.crc32(as_bytes(parameter)) for parameter in model.parameters()))
    totals = [torch.empty_like(total) for _ in range(n)]
    dist.all_gather(totals, total)
    return [other for other in range(n) if totals[other] != totals[0]]

# %% out_of_step: on one rank only
# Not yet. Deadlock: until the timeout, rank 0 waited ... Run the lesson again, from the cell with `World` to this
# check.
def out_of_step(model):
    if rank == 0:
        dist.all_reduce(torch.ones(1))
    return []

# %% World(5): my_same, forward, out_of_step

# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`
# cell `def as_bytes(`
# cell `def same_of_the_lesson(`
same = same_of_the_lesson

# %% my_same: skeleton
# Not yet. When all ranks hold the same, rank 0 returned ... , expected True.

# %% my_same: solution
# Solved. Every rank knows whether all hold the same, and only a few numbers were sent.

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

# %% forward: solution
# Solved. Outputs and gradients are the same, and every parameter takes part on every rank.

# %% my_same: by numpy
# Not yet. Rank ... raised TypeError: Got unsupported ScalarType BFloat16
def my_same(tensor):
    checksum = zlib.crc32(tensor.numpy().tobytes())
    ends = torch.tensor([checksum, -checksum])
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    return (ends[0] == -ends[1]).item()

# %% my_step: solution
# Solved. The forward pass ran in 16 bits, and each step followed the loss's clipped gradients, whatever its scale.

# %% my_step: skeleton
# Not yet. With bf16, on rank 0 the model's outputs are in torch.float32, expected torch.bfloat16: the forward pass runs
# under autocast.

# %% my_step: zero_grad at the end, loss as a tensor
# Solved. ...
def my_step(model, optimizer, scaler, images, labels, dtype=torch.bfloat16):
    with torch.amp.autocast(device_type="cpu", dtype=dtype):
        outputs = model(images)
        loss = cross_entropy(outputs, labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    return loss.detach()

# %% my_step: the loss outside the block
# Solved. ...
# answer "zero_grad at the end, loss as a tensor", with `        loss = cross` as `    loss = cross`

# %% my_step: backward under autocast
# Not yet. With bf16, on rank 0 the backward pass ran under autocast, expected that only the forward pass and the loss
# do.
# solution, with `    scaler.scale(loss).backward()` as `        scaler.scale(loss).backward()`

# %% my_step: clips before it unscales
# Not yet. With fp16 and a scale of 1024, on rank 0 step 0 moved the weights by ..., expected ..., with the gradients of
# this step only, unscaled and then clipped to a norm of 1.
# solution, without `    scaler.unscale_(optimizer)`

# %% my_step: does not clip
# Not yet. With bf16, on rank 0 step 0 moved the weights by ..., expected ..., with the gradients of this step only,
# unscaled and then clipped to a norm of 1.
# solution, without `    clip_grad_norm_(model.parameters(), 1.0)`

# %% my_step: adds the gradients up
# Not yet. With bf16, on rank 0 step 1 moved the weights by ..., expected ..., with the gradients of this step only,
# unscaled and then clipped to a norm of 1.
# solution, without `    optimizer.zero_grad()`

# %% my_step: does not scale
# Not yet. With fp16 and a scale of 1024, on rank 0 the local gradient is ... times the gradient of the loss, expected
# 1024: `scaler` multiplies the loss.
# solution, with `scaler.scale(loss).backward()` as `scaler.scale(loss); loss.backward()`

# %% my_step: does not update the scale
# Not yet. Rank 0 raised RuntimeError: unscale_() is being called after step().
# solution, without `    scaler.update()`

# %% my_step: steps without the scaler
# Not yet. ...
# solution, with `scaler.step(optimizer)` as `optimizer.step()`

# %% my_step: returns the scaled loss
# Not yet. With fp16 and a scale of 1024, on rank 0 `my_step` returned ..., expected the loss of this rank, ...
# solution, with `return loss.item()` as `return scaler.scale(loss).item()`

# %% my_step: converts the model
# Not yet. ...
# solution, with `optimizer.zero_grad()` as `optimizer.zero_grad(); model.to(dtype); images = images.to(dtype)`

# %% my_resume: solution
# Solved. Every rank resumes with weights, momentum and position, its own generator, and the images that are left.

# %% my_resume: skeleton
# Not yet. After 0 batches of 3 images in epoch 2, `my_remaining` on rank 0 returned [...], expected [...]. (This is the
# order of epoch 0.)

# %% my_resume: all images
# Not yet. After 1 batches of 3 images in epoch 2, `my_remaining` on rank 0 returned [...], expected [...]. (These are
# all images of the epoch.)
# solution, with `[run.batch * run.size :]` as `[:]`

# %% my_resume: counts images instead of batches
# Not yet. After 1 batches of 3 images in epoch 2, `my_remaining` on rank 0 returned [...], expected [...].
# solution, with `[run.batch * run.size :]` as `[run.batch :]`

# %% my_resume: an iterator
# Solved. ...
# solution, with `list(run.sampler)[run.batch * run.size :]` as `islice(run.sampler, run.batch * run.size, None)`

# %% my_resume: without a barrier
# Not yet. When `my_save` returned on rank 1, the file did not exist yet. Which call waits for it?
# solution, without `    dist.barrier()`

# %% my_resume: every rank writes
# Not yet. Rank 1 left the files checkpoint.pt, expected that only rank 0 writes.
# solution, with `if rank == 0:` as `if True:`

# %% my_resume: without renaming
# Not yet. Rank 0 raised FileNotFoundError: ...
# solution, with `os.replace(f"{path}.part", path)` as `os.path.exists(path)`

# %% my_resume: without the momentum
# Not yet. After `my_resume`, on rank 0 the momentum values differ from the saved run's.
# solution, with `run.optimizer.load_state_dict(state["optimizer"])` as `run.optimizer.param_groups[0]["lr"] = 0.05`

# %% my_resume: without the optimizer
# Not yet. After `my_resume`, on rank 0 the learning rate is 0.1, expected 0.05.
# solution, without `    run.optimizer.load_state_dict(state["optimizer"])`

# %% my_resume: without the position
# Not yet. After `my_resume`, on rank 0 `run.epoch` is 0, expected 2.
# solution, without `    run.epoch, run.batch = state["epoch"], state["batch"]`

# %% my_resume: without the batch
# Not yet. After `my_resume`, on rank 0 `run.batch` is 0, expected 2.
# solution, with `run.epoch, run.batch = state["epoch"], state["batch"]` as `run.epoch = state["epoch"]`

# %% my_resume: all ranks take the generator of rank 0
# Not yet. After `my_resume`, the generator of rank 1 is in the state of rank 0's generator, expected its own.
# solution, with `["generators"][rank]` as `["generators"][0]`

# %% my_resume: without the generator
# Not yet. After `my_resume`, the generator of rank 0 is in another state than when the run was saved.
# solution, without `    torch.set_rng_state(state["generators"][rank])`

# %% my_resume: a seed for each rank instead of the state
# Not yet. After `my_resume`, the generator of rank 0 is in another state than when the run was saved.
# solution, with `torch.set_rng_state(state["generators"][rank])` as `torch.manual_seed(rank)`

# %% my_resume: without the weights
# Not yet. After `my_resume`, on rank 0 the weights differ from the saved run's.
# solution, without `    run.model.module.load_state_dict(state["model"])`

# %% my_resume: the state dict of DDP on both sides
# Solved. ...
# solution, with `run.model.module.` as `run.model.`

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

# %% forward
# Solved. ...
def forward(self, x):
    hidden = self.body(x)
    return torch.where(x.mean() > 0.5, self.extra(hidden), hidden)

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

# %% accuracy: solution
# Solved. Every rank returned the exact share, and evaluated no more than its own images.

# %% accuracy: skeleton
# Not yet. With an uneven number of images, 17, rank 0 returned 0.4000, expected 0.4706.

# %% accuracy
# Solved. ...
# solution, with `return right.item() / len(data)` as `return right / len(data)`

# %% accuracy
# Not yet. With an uneven number of images, 17, rank 0 returned 0.4750, expected 0.4706.
# solution, with `labels).sum(` as `labels).double().mean(`
# and `return right.item() / len(data)` as `return right.item() / n`

# %% accuracy
# Not yet. With an uneven number of images, 17, rank 0 returned 0.6471, expected 0.4706.
# solution, with `range(rank, len(data), n)` as `list(DistributedSampler(data, shuffle=False))`

# %% accuracy
# Not yet. With an uneven number of images, 17, the ranks evaluated only 16 of them, expected all.
# solution, with `range(rank, len(data), n)` as `list(DistributedSampler(data, shuffle=False, drop_last=True))`

# %% accuracy
# Not yet. With an even number of images, 16, rank 0 evaluated 16 of them, expected at most 4.
# solution, with `images, labels = data[range(rank, len(data), n)]` as `images, labels = data[list(range(len(data)))]`
# and `labels).sum(` as `labels).double().mean(` and `return right.item() / len(data)` as `return right.item() / n`

# %% accuracy
# Not yet. Rank 0 returned (8, 16), expected a number.
# solution, with `return right.item() / len(data)` as `return right.tolist(), len(data)`

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
# Not yet. Rank 0 sent 1800 bytes, expected fewer than 450.
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
# Not yet. Rank 0 sent 7200 bytes, expected fewer than 450.
def out_of_step(model):
    mine = vector(model.parameters()).detach()
    others = [torch.empty_like(mine) for _ in range(n)]
    dist.all_to_all(others, [mine.clone() for _ in range(n)])
    return []

# %% out_of_step
# Not yet. Rank 0 sent 5400 bytes, expected fewer than 450.
def out_of_step(model):
    mine = vector(model.parameters()).detach()
    others = [torch.empty_like(mine) for _ in range(n)]
    [dist.send(mine, peer) for peer in range(1, n)] if rank == 0 else dist.recv(others[0], 0)
    return []

# %% out_of_step
# Not yet. Rank 0 sent 1800 bytes, expected fewer than 450.
# answer "that sends the weights to all",
# with `dist.all_to_all(others, [mine.clone() for _ in range(n)])` as `dist.reduce(mine, dst=0)`

# %% out_of_step: by the first parameter only
# Not yet. When the last bit of all has changed on the last rank, rank 0 returned [], expected [3].
# answer "compared with itself", with `vector` as `next` and `[rank]` as `[0]`

# %% out_of_step: on one rank only
# Not yet. Deadlock: the group's timeout ended ... Call world.restart(), then run the lesson again, from its setup cell
# to this check.
def out_of_step(model):
    if rank == 0:
        dist.all_reduce(torch.ones(1))
    return []

# %% World(5): my_step, my_resume, forward, accuracy, out_of_step

# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(`, with `seconds=10` as `seconds=4`

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
# Not yet. With bf16, on rank 0 the backward pass ran under autocast, expected only the forward pass and the loss.
# solution, with `    scaler.scale(loss).backward()` as `        scaler.scale(loss).backward()`

# %% my_step: clips before it unscales
# Not yet. With fp16 and a scale of 1024, on rank 0 step 0 moved the weights by ..., and they are off by ..., expected
# the move of one process, .... Use the gradients of this step only, unscaled and then clipped to a norm of 1.
# solution, without `    scaler.unscale_(optimizer)`

# %% my_step: does not clip
# Not yet. With bf16, on rank 0 step 0 moved the weights by ..., and they are off by ..., expected the move of one
# process, .... Use the gradients of this step only, unscaled and then clipped to a norm of 1.
# solution, without `    clip_grad_norm_(model.parameters(), 1.0)`

# %% my_step: adds the gradients up
# Not yet. With bf16, on rank 0 step 1 moved the weights by ..., and they are off by ..., expected the move of one
# process, .... Use the gradients of this step only, unscaled and then clipped to a norm of 1.
# solution, without `    optimizer.zero_grad()`

# %% my_step: does not scale
# Not yet. With fp16 and a scale of 1024, on rank 0 the local gradient is ... times the gradient of the loss, expected
# 1024: `scaler` multiplies the loss.
# solution, with `scaler.scale(loss).backward()` as `scaler.scale(loss); loss.backward()`

# %% my_step: does not update the scale
# Not yet. With bf16, on rank 0 `my_step` did not call `scaler.update()`, expected a call in every step.
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
# Not yet. At batch 0 of epoch 2, with 3 images a batch, `my_remaining` on rank 0 returned [...], expected [...]. (This is
# the order of epoch 0.)

# %% my_resume: all images
# Not yet. At batch 1 of epoch 2, with 3 images a batch, `my_remaining` on rank 0 returned [...], expected [...]. (These
# are all images of the epoch.)
# solution, with `[run.batch * run.size :]` as `[:]`

# %% my_resume: counts images instead of batches
# Not yet. At batch 1 of epoch 2, with 3 images a batch, `my_remaining` on rank 0 returned [...], expected [...].
# solution, with `[run.batch * run.size :]` as `[run.batch :]`

# %% my_resume: an iterator
# Solved. ...
# solution, with `list(run.sampler)[run.batch * run.size :]` as `islice(run.sampler, run.batch * run.size, None)`

# %% my_resume: without a barrier
# Not yet. When `my_save` returned on rank 1, the file did not exist yet, expected the saved run. Which call waits for
# rank 0?
# solution, without `    dist.barrier()`

# %% my_resume: every rank writes
# Not yet. Rank 1 left the files checkpoint.pt, expected none: only rank 0 writes.
# solution, with `if rank == 0:` as `if True:`

# %% my_resume: without renaming
# Not yet. Rank 0 raised FileNotFoundError: ...
# solution, with `os.replace(f"{path}.part", path)` as `os.path.exists(path)`

# %% my_resume: a barrier before the file has its name
# Not yet. When `my_save` returned on rank 1, the file did not exist yet, expected the saved run. Which call waits for
# rank 0?
# solution, without `    dist.barrier()` and with `        os.replace(f"{path}.part", path)`
# as `    dist.barrier(); os.replace(f"{path}.part", path) if rank == 0 else None`

# %% my_resume: writes into the file itself
# Not yet. Rank 0 wrote into the file of an earlier save, expected a new file with a temporary name, which is then
# renamed: otherwise a rank may see half a file.
# solution, with `torch.save(state, f"{path}.part")` as `torch.save(state, path)`
# and without `        os.replace(f"{path}.part", path)`

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
# Not yet. After `my_resume`, the state of rank 0's generator differs, expected its state when the run was saved.
# solution, without `    torch.set_rng_state(state["generators"][rank])`

# %% my_resume: a seed for each rank instead of the state
# Not yet. After `my_resume`, the state of rank 0's generator differs, expected its state when the run was saved.
# solution, with `torch.set_rng_state(state["generators"][rank])` as `torch.manual_seed(rank)`

# %% my_resume: without the weights
# Not yet. After `my_resume`, on rank 0 the weights differ from the saved run's.
# solution, without `    run.model.module.load_state_dict(state["model"])`

# %% my_resume: the state dict of DDP on both sides
# Solved. ...
# solution, with `run.model.module.` as `run.model.`

# %% my_resume: rows of one tensor
# Solved. ...
# solution, with `"generators": generators` as `"generators": torch.stack(generators)`
# and `["generators"][rank]` as `["generators"][rank].clone()`

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

# %% accuracy: consecutive images
# Solved. ...
# solution, with `data[range(rank, len(data), n)]` as `data[rank * most : (rank + 1) * most]`
# and `    images, labels =` as `    most = -(-len(data) // n); images, labels =`

# %% accuracy: a chunk for each rank
# Not yet. Rank ... raised IndexError: ...
# solution, with `data[range(rank, len(data), n)]` as `data[torch.arange(len(data)).chunk(n)[rank]]`

# %% accuracy: rank 0 takes the last image
# Not yet. With a small number of images, 6, ...
# solution, with `data[range(rank, len(data), n)]` as `data[mine]`
# and `    images, labels =` as `    mine = list(range(rank, len(data) // n * n, n)) + [len(data) - 1] * (rank == 0 < len(data) % n); images, labels =`

# %% accuracy
# Not yet. Rank 0 returned (8, 16), expected a number.
# solution, with `return right.item() / len(data)` as `return right.tolist(), len(data)`

# %% World(5): my_step, my_resume, accuracy

# %% World(4)
# cell `init_process_group(` of solutions
# cell `from pydoc_data.topics` of solutions
# cell `class Attention` of solutions
# cell `class GPT` of solutions
# cell `def train(` of solutions
# cell `def shard(` of solutions
# cell `def reduce_gradients(` of solutions
SEED = 0

# %% my_plan: skeleton
# Not yet. Rank 0, `attention` of a block: the weight of `q` has the shape [96, 96] on a rank, expected [24, 96].

# %% my_plan: solution
# Solved. The loss and all gradients equal those of one process. A block's forward pass gathers and scatters twice.

# %% my_plan: attention without its input
# Not yet. Rank 0, `attention` of a block: the forward pass calls ..., expected 1 all_gather_into_tensor, 1
# reduce_scatter_tensor. `PrepareModuleInput` turns the input of a whole module into a DTensor once.
# solution, with `"blocks.*.attention": gathered` as `"blocks.*.attention.[qk]": ColwiseParallel(input_layouts=Shard(1))`
# and `[qkv]": ColwiseParallel()` as `v": ColwiseParallel(input_layouts=Shard(1))`

# %% my_plan: norms that are not in the plan
# Not yet. Attention and MLP are right. Rank 0: the loss is right, but the gradient of `blocks.0.norm1.weight` ...
# solution, without `        "blocks.*.norm[12]": SequenceParallel(),`

# %% my_plan: the last norm is forgotten
# Not yet. Attention and MLP are right. Rank 0: the loss is right, but the gradient of `norm.weight` differs ...
# solution, without `        "norm": SequenceParallel(),`

# %% my_plan: block by block
# Solved. ...
def my_plan():
    own = {"output_layouts": Shard(1)}
    plan = {
        "tokens": RowwiseParallel(input_layouts=Replicate(), **own),
        "positions": RowwiseParallel(input_layouts=Replicate(), **own),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    for number in range(LAYERS):
        for norm, module, first, last in (("norm1", "attention", "qkv", "out"), ("norm2", "mlp", ["up"], "down")):
            block = f"blocks.{number}."
            plan[block + norm] = SequenceParallel()
            plan[block + module] = PrepareModuleInput(
                input_layouts=Shard(1), desired_input_layouts=Replicate(), use_local_output=False
            )
            plan |= {f"{block}{module}.{name}": ColwiseParallel() for name in first}
            plan[f"{block}{module}.{last}"] = RowwiseParallel(**own)
    return plan

# %% my_plan: without sequence parallel
# Not yet. Rank 0, `attention` of a block: its output has the shape ... on a rank, expected ..., only its own tokens. ...
# solution, with `own_tokens = {"output_layouts": Shard(1)}` as `own_tokens = {}`

# %% my_plan: the first matrix by rows
# Not yet. Rank 0, `mlp` of a block: the weight of `up` has the shape [384, 24] on a rank, expected [96, 96].
# solution, with `"blocks.*.mlp.up": ColwiseParallel()` as `"blocks.*.mlp.up": RowwiseParallel()`

# %% my_plan: tables on every rank
# Not yet. Rank 0 raised ValueError: Expected input batch_size (2304) to match target batch_size (576)...
# solution, without `        "tokens": RowwiseParallel(input_layouts=Replicate(), **own_tokens),`
# and without `        "positions": RowwiseParallel(input_layouts=Replicate(), **own_tokens),`

# %% my_plan: no dict
# Not yet. Rank 0: `my_plan` returned None, expected a dict of styles.
def my_plan():
    {"norm": SequenceParallel()}

# %% my_plan: a name that no module has
# Not yet. ... Parallelize plan key 'o' could not be resolved...
# solution, with `attention.out` as `attention.o`

# %% my_step: skeleton
# Not yet. Rank 0 returned ..., expected ..., the mean loss of its 3 micro-batches.

# %% my_step: solution
# Solved. The step with 3 micro-batches is the step of one process, clipped or not, and each unit reduces once.

# %% my_step: gradients are added up
# Not yet. Rank 0: without clipping the update is 3.0 times the update of one process, expected 1. Use the mean gradient
# of the 3 micro-batches.
# solution, with `loss_of(model, *micro_batch) / len(micro_batches)` as `loss_of(model, *micro_batch)`
# and `return mean` as `return mean / len(micro_batches)`

# %% my_step: gradients are left
# Not yet. Rank 0: the first step is right, but the second update is ... times the expected update. Are gradients of the
# first step left over?
# solution, without `    optimizer.zero_grad()`

# %% my_step: without clipping
# Not yet. Rank 0: with a gradient norm of ... and a limit of ..., the update is 2.0 times the expected update. ...
# solution, without `    nn.utils.clip_grad_norm_(model.parameters(), most)`

# %% my_step: every micro-batch reduces
# Not yet. The update is right. In a step rank 0 called 9 reduce_scatter, expected 3: ...
# solution, without `        reduce_gradients(model, index == len(micro_batches) - 1)`

# %% my_step: never reduces
# Not yet. ...
# solution, with `index == len(micro_batches) - 1` as `False`

# %% my_step: clips each micro-batch
# Not yet. Rank 0: with a gradient norm of ...
# solution, with `mean += loss.detach()`
# as `mean += loss.detach(); nn.utils.clip_grad_norm_(model.parameters(), most / len(micro_batches))`
# and without `    nn.utils.clip_grad_norm_(model.parameters(), most)`

# %% my_step: each rank clips by its own norm
# Not yet. Rank 0: with a gradient norm of ...
# solution, with `nn.utils.clip_grad_norm_(model.parameters(), most)`
# as `own = [p.grad.to_local() for p in model.parameters()]; nn.utils.clip_grads_with_norm_([], most, clip(own, most))`
def clip(gradients, most):
    norm = nn.utils.get_total_norm(gradients)
    for gradient in gradients:
        gradient.mul_((most / norm).clamp(max=1))
    return norm

# %% my_step: clears the gradients only before
# Not yet. The update is right. After it, ... parameters of rank 0 still have a gradient, expected none.
# solution, with `mean = 0` as `mean = 0; optimizer.zero_grad()`
# and without `    optimizer.zero_grad()`

# %% my_step: the sum of the losses at once
# Solved. ...
def my_step(model, optimizer, micro_batches, most):
    losses = []
    for number, micro_batch in enumerate(micro_batches, 1):
        reduce_gradients(model, number == len(micro_batches))
        losses.append(loss_of(model, *micro_batch))
        (losses[-1] / len(micro_batches)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), most)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    return sum(losses).item() / len(losses)

# %% my_step: clips after each micro-batch
# Not yet. With `fully_shard` the step is right. Rank 0: on a model without `fully_shard` the update is ...
# solution, with `mean += loss.detach()`
# as `mean += loss.detach(); nn.utils.clip_grad_norm_(model.parameters(), most)`
# and without `    nn.utils.clip_grad_norm_(model.parameters(), most)`

# %% my_step: only for fully_shard
# Not yet. Rank 0 raised AttributeError: 'GPT' object has no attribute 'set_requires_gradient_sync' ...
# solution, with `reduce_gradients(model, index == len(micro_batches) - 1)`
# as `model.set_requires_gradient_sync(index == len(micro_batches) - 1)`

# %% my_step: returns nothing
# Not yet. Rank 0 returned None, expected ..., the mean loss of its 3 micro-batches.
# solution, without `    return mean`

# %% bytes_of_a_rank: skeleton
# Not yet. With 9600 elements in matrices, 0 in norms, and a mesh of 2 replicas, 4 shards and 1 tensor ranks, rank 0
# returned 19200.0, expected 38400 bytes.

# %% bytes_of_a_rank: solution
# Solved. The bytes of a rank are right for 5 models and meshes.

# %% bytes_of_a_rank: norms are split, too
# Not yet. With 9600 elements in matrices, 480 in norms, and a mesh of 1 replicas, 2 shards and 4 tensor ranks, ...
# solution, with `(matrices / tensor + norms) / shard` as `(matrices + norms) / (shard * tensor)`

# %% validation_loss: skeleton
# Not yet. With 9 sequences, rank 0 returned ..., expected ..., the mean over all tokens. A rank may have fewer sequences
# than the others, or none.

# %% validation_loss: solution
# Solved. Every rank returned the mean over all tokens, even where some ranks have no sequence.

# %% validation_loss: all sequences on every rank
# Not yet. The loss is right. With 8 sequences, rank 0 evaluated 8 sequences, expected 2, every n-th sequence.
@torch.no_grad()
def validation_loss(model, ids, targets):
    return loss_of(model, ids, targets)

# %% validation_loss: means, weighted
# Not yet. With 3 sequences, rank 0 returned nan, expected ...
@torch.no_grad()
def validation_loss(model, ids, targets):
    loss = loss_of(model, ids[rank::n], targets[rank::n]) * len(ids[rank::n])
    dist.all_reduce(loss)
    return loss / len(ids)

# %% World(6): my_plan, my_step, validation_loss

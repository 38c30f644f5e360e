# %% World(2)
# cell `import os, time`
# cell `init_rpc(`
# cell `class First:`

# %% MyStep: solution
# Solved. Losses and gradients are those of one process, and a forward moves only the bytes it needs.

# %% MyStep
# Solved. Losses and gradients are those of one process, and a forward moves only the bytes it needs.
# solution, with `self.table.forward(rows)[places]` as `nn.functional.embedding(places, self.table.forward(rows))`

# %% MyStep
# Solved. Losses and gradients are those of one process, and a forward moves only the bytes it needs.
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())` as `cross_entropy(logits.transpose(1, 2), targets)`

# %% MyStep
# Solved. Losses and gradients are those of one process, and a forward moves only the bytes it needs.
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `-logits.log_softmax(dim=2).gather(2, targets[..., None]).mean()`

# %% MyStep: of the lesson
# Solved. Losses and gradients are those of one process, and a forward moves only the bytes it needs.
# solution, with `class MyDecoder(nn.Linear):` as `class DecoderWithLoss(nn.Linear):`
# and `kind = MyDecoder` as `kind = DecoderWithLoss`

# %% MyStep: skeleton
# Not yet. The model is the same, and its forward moves 41.0 times the bytes it needs.

# %% MyStep
# Not yet. The model is the same, and its forward moves 1.4 times the bytes it needs.
# solution, with `self.table.forward(rows)[places]` as `self.table.forward(words)`

# %% MyStep
# Not yet. The hidden state after window 0 differs ...
# solution, with `self.table.forward(rows)[places]` as `self.table.forward(rows)[places.flip(0)]`

# %% MyStep
# Not yet. Backward waited in vain for a gradient, expected ...
# solution, with `self.table.forward(rows)[places]` as `self.table.forward(rows).detach()[places]`

# %% MyStep
# Not yet. The loss of window 0 is ...
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `cross_entropy(logits.flatten(0, 1), targets.flatten()) / 2`

# %% MyStep
# Not yet. The loss of window 1 is ...
# solution, with `(vectors, hidden)` as `(vectors)`

# %% MyStep
# Not yet. The hidden state after window 0 differs ...
# solution, with `self.decoder.forward(output, targets), hidden` as `self.decoder.forward(output, targets), None`

# %% MyStep
# Not yet. The losses have no graph, expected one ...
# solution, with `self.decoder.forward(output, targets)` as `self.decoder.forward(output, targets).detach()`

# %% MyStep
# Not yet. `loss` returned a float and the hidden state ...
# solution, with `self.decoder.forward(output, targets)` as `self.decoder.forward(output, targets).item()`

# %% MyStep
# Not yet. `loss` returned a tensor of shape (), expected a pair: loss and hidden state.
# solution, with `self.decoder.forward(output, targets), hidden` as `self.decoder.forward(output, targets)`

# %% MyStep
# Not yet. Backward waited ...
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `cross_entropy(logits.flatten(0, 1), targets.flatten()).detach().requires_grad_()`

# %% loss_there: solution
# Solved. The loss and all gradients are right, and the trainer received 4 bytes instead of 80000.

# %% loss_there: skeleton
# Not yet. The trainer received 80000 bytes, of which the logits are 80000, expected 64 at most.

# %% loss_there: a future
# Solved. ...
# solution,
# with `rpc.rpc_sync(reference.owner(), loss_on_owner, (reference, output, targets))`
# as `rpc.rpc_async(reference.owner(), loss_on_owner, (reference, output, targets)).wait()`

# %% loss_there: an RRef
# Solved. ...
# solution,
# with `rpc.rpc_sync(reference.owner(), loss_on_owner, (reference, output, targets))`
# as `rpc.remote(reference.owner(), loss_on_owner, (reference, output, targets)).to_here()`

# %% loss_there: by hand
# Solved. ...
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `-logits.log_softmax(dim=2).gather(2, targets[..., None]).mean()`

# %% loss_there
# Not yet. The loss is 14....
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `cross_entropy(logits.flatten(0, 1), targets.flatten()) * 2`

# %% loss_there
# Not yet. `loss_there` returned a tensor of shape (20,), expected the loss, a tensor of one number.
# solution, with `targets.flatten()` as `targets.flatten(), reduction="none"`

# %% loss_there
# Not yet. The loss is right, and the gradient of the output is not.
# solution, with `loss_on_owner, (reference, output, targets)` as `loss_on_owner, (reference, output.detach(), targets)`

# %% loss_there
# Not yet. The loss is right, and the gradient of the output is not.
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `cross_entropy(logits.flatten(0, 1), targets.flatten()).detach()`

# %% loss_there
# Not yet. `loss_there` returned a float, expected the ...
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `cross_entropy(logits.flatten(0, 1), targets.flatten()).item()`

# %% loss_there
# Not yet. Rank 0 raised NameError("name 'missing' is not defined") on server
# solution, with `logits = reference.local_value()(output)` as `logits = missing(output)`

# %% loss_there: with a copy of the decoder here
# Not yet. The trainer received 68000 bytes, expected 64 at most.
def loss_there(decoder, output, targets):
    weight, bias = [reference.to_here() for reference in decoder.remote_parameters()]
    return cross_entropy((output @ weight.T + bias).flatten(0, 1), targets.flatten())

# %% looked_up: solution
# Solved. The vectors and the gradient are right up to rounding, and the trainer received 256 bytes.

# %% looked_up: skeleton
# Not yet. The trainer received 1280 bytes for 20 words, 8 of them different, expected 256.

# %% looked_up: fp16
# Solved. ...
import torch

def rows_in_half(reference, rows):
    return reference.local_value()(rows).half()

def looked_up(table, words):
    rows, places = words.unique(return_inverse=True)
    reference = table.get_module_rref()
    return rpc.rpc_sync(reference.owner(), rows_in_half, (reference, rows)).float()[places]

# %% looked_up: by index_select
# Solved. ...
import torch

def rows_in_half(reference, rows):
    return reference.local_value()(rows).bfloat16()

def looked_up(table, words):
    rows, places = words.unique(return_inverse=True)
    reference = table.get_module_rref()
    return (
        rpc.rpc_sync(reference.owner(), rows_in_half, (reference, rows))
        .to(torch.float32)
        .index_select(0, places.flatten())
        .view(*words.shape, -1)
    )

# %% looked_up: by embedding
# Solved. ...
import torch

def rows_in_half(reference, rows):
    return reference.local_value()(rows).bfloat16()

def looked_up(table, words):
    rows, places = words.unique(return_inverse=True)
    reference = table.get_module_rref()
    small = rpc.rpc_async(reference.owner(), rows_in_half, (reference, rows)).wait()
    return torch.nn.functional.embedding(places, small.float())

# %% looked_up
# Not yet. The trainer received 512 bytes for 20 words, 8 of them different, expected 256.
# solution, without `.bfloat16()`

# %% looked_up
# Not yet. `looked_up` returned a tensor of shape (5, 4, 16) and type torch.bfloat16, expected a tensor of shape (5, 4,
# 16) and type torch.float32.
# solution, with `.float()[places]` as `[places]`

# %% looked_up
# Not yet. The vectors are up to ...
# solution, with `[places]` as `[0 * places]`

# %% looked_up
# Not yet. The vectors are right, and no gradient comes to the table.
# solution, with `.bfloat16()` as `.detach().bfloat16()`

# %% looked_up
# Not yet. Rank 0 raised NameError: name 'missing' is not defined
# solution, with `.float()[places]` as `.float()[places] + 0 * missing`

# %% looked_up: with every copy of a row
# Not yet. The trainer received 640 bytes for 20 words, 8 of them different, expected 256.
# solution, with `rows, places = words.unique(return_inverse=True)` as `rows, places = words, ...`

# %% World(3): loss_there, looked_up

# %% World(3)
# Nobody has started RPC.

# %% loss_there: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass

# %% looked_up: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass

# %% distributed_rnn.clip: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass

# %% distributed_rnn.TwoLayers: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass

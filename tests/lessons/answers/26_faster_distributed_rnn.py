# %% World(2)
# cell `import os, time`
# cell `init_rpc(`
# cell `class SendsLogits:`
# cell `class DecoderWithLoss(`
# cell `FewBytes = accepted(`

# %% MyFewBytes: solution
# Solved. Losses and gradients are those of one process, and a forward pass moves only the bytes that it needs.

# %% MyFewBytes
# Solved. Losses and gradients are those of one process, and a forward pass moves only the bytes that it needs.
# solution, with `self.table.forward(rows)[places]` as `nn.functional.embedding(places, self.table.forward(rows))`

# %% MyFewBytes
# Solved. Losses and gradients are those of one process, and a forward pass moves only the bytes that it needs.
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())` as `cross_entropy(logits.transpose(1, 2), targets)`

# %% MyFewBytes
# Solved. Losses and gradients are those of one process, and a forward pass moves only the bytes that it needs.
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `-logits.log_softmax(dim=2).gather(2, targets[..., None]).mean()`

# %% MyFewBytes: another name of the decoder
# Solved. Losses and gradients are those of one process, and a forward pass moves only the bytes that it needs.
# solution, with `class MyDecoder(nn.Linear):` as `class LossDecoder(nn.Linear):`
# and `decoder_class = MyDecoder` as `decoder_class = LossDecoder`

# %% MyFewBytes: all in loss
# Solved. Losses and gradients are those of one process, and a forward pass moves only the bytes that it needs.
class MyDecoder(nn.Linear):
    def forward(self, output, targets):
        return cross_entropy(super().forward(output).flatten(0, 1), targets.flatten())

class MyFewBytes(SendsLogits):
    decoder_class = MyDecoder

    def loss(self, words, targets, hidden=None):
        rows, places = words.unique(return_inverse=True)
        output, hidden = self.lstm(self.table.forward(rows)[places], hidden)
        return self.decoder.forward(output, targets), hidden

# %% MyFewBytes: skeleton
# Not yet. The results are right, but the trainer received 81280 bytes, of which the logits are 80000, expected no
# logits: let the decoder return the loss.

# %% MyFewBytes: first half
# Not yet. The loss comes from the server, but a forward pass moves 2884 bytes, expected 2020: for 20 words, 8 of them
# different, the table has to send 8 rows.
# solution, with `self.table.forward(rows)[places]` as `self.table.forward(words)`

# %% MyFewBytes: second half
# Not yet. The results are right, but the trainer received 80512 bytes, of which the logits are 80000, expected no
# logits: let the decoder return the loss.
class MyFewBytes(SendsLogits):
    def vectors(self, words):
        rows, places = words.unique(return_inverse=True)
        return self.table.forward(rows)[places]

# %% MyFewBytes
# Not yet. The hidden state after window 0 differs ...
# solution, with `self.table.forward(rows)[places]` as `self.table.forward(rows)[places.flip(0)]`

# %% MyFewBytes
# Not yet. The backward pass waited in vain for a gradient, expected ...
# solution, with `self.table.forward(rows)[places]` as `self.table.forward(rows).detach()[places]`

# %% MyFewBytes
# Not yet. The loss of window 0 is ...
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `cross_entropy(logits.flatten(0, 1), targets.flatten()) / 2`

# %% MyFewBytes: the sum of the losses
# Not yet. The loss of window 0 is ...
# solution, with `targets.flatten())` as `targets.flatten(), reduction="sum")`

# %% MyFewBytes
# Not yet. The loss of window 1 is ...
# solution, with `self.lstm(self.vectors(words), hidden)` as `self.lstm(self.vectors(words))`

# %% MyFewBytes
# Not yet. The hidden state after window 0 differs ...
# solution, with `self.decoder.forward(output, targets), hidden` as `self.decoder.forward(output, targets), None`

# %% MyFewBytes
# Not yet. The losses have no graph, expected a graph ...
# solution, with `self.decoder.forward(output, targets)` as `self.decoder.forward(output, targets).detach()`

# %% MyFewBytes
# Not yet. `loss` returned a float and the hidden state ...
# solution, with `self.decoder.forward(output, targets)` as `self.decoder.forward(output, targets).item()`

# %% MyFewBytes
# Not yet. `loss` returned a tensor of shape (), expected a pair: loss and hidden state.
# solution, with `self.decoder.forward(output, targets), hidden` as `self.decoder.forward(output, targets)`

# %% MyFewBytes
# Not yet. The backward pass waited ...
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `cross_entropy(logits.flatten(0, 1), targets.flatten()).detach().requires_grad_()`

# %% MyFewBytes: rows at the words instead of their places
# Not yet. Rank 0 raised IndexError: index ... is out of bounds for dimension 0 with size 8
# solution, with `return self.table.forward(rows)[places]` as `return self.table.forward(rows)[words]`

# %% MyFewBytes: with a hidden state of its own
# Not yet. The loss of window 1 is ...
class MyFewBytes(SendsLogits):
    decoder_class = DecoderWithLoss
    hidden = None

    def vectors(self, words):
        rows, places = words.unique(return_inverse=True)
        return self.table.forward(rows)[places]

    def loss(self, words, targets, hidden=None):
        output, hidden = self.lstm(self.vectors(words), self.hidden)
        self.hidden = [state.detach() for state in hidden]
        return self.decoder.forward(output, targets), hidden

# %% MyFewBytes: rows kept from the window before
# Not yet. The results are right, but a gradient of the table differs, expected the gradient of one process.
# solution, with `return self.table.forward(rows)[places]`
# as `self.kept = self.kept.detach() if hasattr(self, "kept") else self.table.forward(rows); return self.kept[places]`

# %% MyHalves: solution
# Solved. The results are those of one process, and the decoder works on one half while the LSTM runs the other.

# %% MyHalves: skeleton
# Not yet. The results are right, and the decoder ran 1 time for a window, expected 2 times: once for each half.

# %% MyHalves: waits for each half
# Not yet. The second call of the decoder began after the first loss had come back, expected both calls to be under way
# at the same time: use `forward_async`, and wait after the second call.
# solution, with `futures.append(self.decoder.forward_async(output, halves(targets)[half]))`
# as `futures.append(self.decoder.forward(output, halves(targets)[half]))`
# and `[future.wait() for future in futures]` as `futures`

# %% MyHalves: waits at once
# Not yet. The second call of the decoder began after the first loss had come back, expected both calls to be under way
# at the same time: use `forward_async`, and wait after the second call.
# solution, with `.append(self.decoder.forward_async(output, halves(targets)[half]))`
# as `.append(self.decoder.forward_async(output, halves(targets)[half])) or futures[-1].wait()`

# %% MyHalves: the LSTM first
# Not yet. The LSTM ran both halves before the first call of the decoder, expected this call before the LSTM runs the
# second half.
def halves(tensor):
    return tensor.chunk(2, dim=1)

class MyHalves(FewBytes):
    def loss(self, words, targets, hidden=None):
        states = [None, None] if hidden is None else list(zip(*map(halves, hidden)))
        runs = [self.lstm(*pair) for pair in zip(halves(self.vectors(words)), states)]
        futures = [self.decoder.forward_async(run[0], part) for run, part in zip(runs, halves(targets))]
        loss = sum(future.wait() for future in futures) / 2
        return loss, [torch.cat(pair, dim=1) for pair in zip(*(state for _, state in runs))]

# %% MyHalves: without zip
# Solved. The results are those of one process, and the decoder works on one half while the LSTM runs the other.
class MyHalves(FewBytes):
    def loss(self, words, targets, hidden=None):
        left, right = self.vectors(words).chunk(2, dim=1)
        left_targets, right_targets = targets.chunk(2, dim=1)
        left_hidden = right_hidden = None
        if hidden is not None:
            (left_h, right_h), (left_c, right_c) = [state.chunk(2, dim=1) for state in hidden]
            left_hidden, right_hidden = (left_h, left_c), (right_h, right_c)
        output, (left_h, left_c) = self.lstm(left, left_hidden)
        first = self.decoder.forward_async(output, left_targets)
        output, (right_h, right_c) = self.lstm(right, right_hidden)
        second = self.decoder.forward_async(output, right_targets)
        loss = torch.stack(torch.futures.wait_all([first, second])).mean()
        return loss, (torch.cat([left_h, right_h], dim=1), torch.cat([left_c, right_c], dim=1))

# %% MyHalves: by rpc_async of an RRef, whose first call leaves the context
# Not yet. The results are right, but a gradient of the table differs, expected the gradient of one process.
# solution, with `self.decoder.forward_async(output, halves(targets)[half])`
# as `self.decoder.get_module_rref().rpc_async().forward(output, halves(targets)[half])`

# %% MyHalves: halves of 8 columns, whatever the window
# Not yet. Rank 0 raised RuntimeError: Expected hidden[0] size (1, 2, 16), got [1, 4, 16]
class MyHalves(FewBytes):
    def loss(self, words, targets, hidden=None):
        left, right = self.vectors(words).chunk(2, dim=1)
        left_targets, right_targets = targets.chunk(2, dim=1)
        left_hidden = right_hidden = None
        if hidden is not None:
            left_hidden = [state[:, :8].contiguous() for state in hidden]
            right_hidden = [state[:, 8:].contiguous() for state in hidden]
        output, left_hidden = self.lstm(left, left_hidden)
        first = self.decoder.forward_async(output, left_targets)
        output, right_hidden = self.lstm(right, right_hidden)
        second = self.decoder.forward_async(output, right_targets)
        hidden = [torch.cat(states, dim=1) for states in zip(left_hidden, right_hidden)]
        return (first.wait() + second.wait()) / 2, hidden

# %% MyHalves: the sum of the halves
# Not yet. The loss of window 0 is ...
# solution, with `(first + second) / 2` as `first + second`

# %% MyHalves: one half only
# Not yet. The loss of window 0 is ...
# solution, with `(first + second) / 2` as `first`

# %% MyHalves: split by rows
# Not yet. The loss of window 0 is ...
# solution, with `tensor.chunk(2, dim=1)` as `tensor.chunk(2, dim=0)`
# and `[None, None] if hidden is None else list(zip(*map(halves, hidden)))` as `[hidden, hidden]`

# %% MyHalves: without hidden state
# Not yet. The loss of window 1 is ...
# solution, with `list(zip(*map(halves, hidden)))` as `[None, None]`

# %% MyHalves: hidden states exchanged
# Not yet. The hidden state after window 0 differs ...
# solution, with `torch.cat(pair, dim=1) for pair in zip(*states)` as `torch.cat(pair, dim=1) for pair in zip(*states[::-1])`

# %% MyHalves: stacked
# Not yet. The hidden state after window 0 differs ...
# solution, with `torch.cat(pair, dim=1)` as `torch.cat(pair, dim=2)`

# %% MyHalves: futures
# Not yet. `loss` returned ...
# solution, with `(first + second) / 2` as `futures[0]`

# %% MyHalves: rows of each half
# Not yet. The loss comes from the server, but a forward pass moves ...
# solution, with `halves(self.vectors(words))` as `[self.vectors(part) for part in halves(words)]`

# %% MyHalves: with hidden states of its own
# Not yet. The loss of window 1 is ...
# solution, with `[None, None] if hidden is None else list(zip(*map(halves, hidden)))`
# as `getattr(self, "states", [None, None])`
# and `return (first + second) / 2`
# as `self.states = [[s.detach() for s in pair] for pair in states]; return (first + second) / 2`

# %% MyHalves: targets of the first half
# Not yet. The loss of window 0 is ...
# solution, with `halves(targets)[half]` as `halves(targets)[0]`

# %% loss_on_server: solution
# Solved. The loss and all gradients are right, and the trainer received 4 bytes instead of 80000.

# %% loss_on_server: skeleton
# Not yet. The trainer received 80000 bytes, of which the logits are 80000, expected 64 at most.

# %% loss_on_server: a future
# Solved. ...
# solution,
# with `rpc.rpc_sync(reference.owner(), loss_on_owner, (reference, output, targets))`
# as `rpc.rpc_async(reference.owner(), loss_on_owner, (reference, output, targets)).wait()`

# %% loss_on_server: an RRef
# Solved. ...
# solution,
# with `rpc.rpc_sync(reference.owner(), loss_on_owner, (reference, output, targets))`
# as `rpc.remote(reference.owner(), loss_on_owner, (reference, output, targets)).to_here()`

# %% loss_on_server: by hand
# Solved. ...
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `-logits.log_softmax(dim=2).gather(2, targets[..., None]).mean()`

# %% loss_on_server
# Not yet. The loss is 14....
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `cross_entropy(logits.flatten(0, 1), targets.flatten()) * 2`

# %% loss_on_server
# Not yet. `loss_on_server` returned a tensor of shape (20,), expected the loss, a tensor with one element.
# solution, with `targets.flatten()` as `targets.flatten(), reduction="none"`

# %% loss_on_server
# Not yet. The loss is right, but the gradient of the output is wrong.
# solution, with `loss_on_owner, (reference, output, targets)` as `loss_on_owner, (reference, output.detach(), targets)`

# %% loss_on_server
# Not yet. The loss is right, but the gradient of the output is wrong.
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `cross_entropy(logits.flatten(0, 1), targets.flatten()).detach()`

# %% loss_on_server
# Not yet. `loss_on_server` returned a float, expected the ...
# solution,
# with `cross_entropy(logits.flatten(0, 1), targets.flatten())`
# as `cross_entropy(logits.flatten(0, 1), targets.flatten()).item()`

# %% loss_on_server
# Not yet. Rank 0 raised NameError("name 'missing' is not defined") on server
# solution, with `logits = reference.local_value()(output)` as `logits = missing(output)`

# %% loss_on_server: the RemoteModule travels
# Not yet. Rank 0 raised AttributeError("'RemoteModule' object has no attribute '_backward_hooks'") on server. Call the
# `forward` of the module.
def remote_loss(module, output, targets):
    logits = module(output)
    return cross_entropy(logits.flatten(0, 1), targets.flatten())

def loss_on_server(decoder, output, targets):
    return rpc.rpc_sync("server", remote_loss, (decoder, output, targets))

# %% loss_on_server: an RRef is called
# Not yet. Rank 0 raised TypeError("'torch._C._distributed_rpc.PyRRef' object is not callable") on server. Name
# a method, such as `rpc_sync().forward(...)`; on the owner, `local_value()` returns the object.
# solution, with `reference.local_value()(output)` as `reference(output)`

# %% loss_on_server: with a copy of the decoder here
# Not yet. The trainer received 68000 bytes, expected 64 at most.
def loss_on_server(decoder, output, targets):
    weight, bias = [reference.to_here() for reference in decoder.remote_parameters()]
    return cross_entropy((output @ weight.T + bias).flatten(0, 1), targets.flatten())

# %% loss_on_server: with another forward of the decoder
# Not yet. Loss and gradients are right, but the decoder's `forward` is no longer the `forward` of nn.Linear, expected
# the decoder unchanged: have the owner call a function of yours.
def return_loss(reference):
    forward = reference.local_value().forward

    def loss_of(output, targets):
        return cross_entropy(forward(output).flatten(0, 1), targets.flatten())

    reference.local_value().forward = loss_of

def loss_on_server(decoder, output, targets):
    reference = decoder.get_module_rref()
    rpc.rpc_sync(reference.owner(), return_loss, (reference,))
    return decoder.forward(output, targets)

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
# Not yet. The vectors differ from the table's by up to ...
# solution, with `[places]` as `[0 * places]`

# %% looked_up
# Not yet. The vectors are right, but no gradient reaches the table.
# solution, with `.bfloat16()` as `.detach().bfloat16()`

# %% looked_up
# Not yet. Rank 0 raised NameError: name 'missing' is not defined
# solution, with `.float()[places]` as `.float()[places] + 0 * missing`

# %% looked_up: rounds the table
# Not yet. The vectors are right, but `looked_up` changed the weight of the table, expected it unchanged: round the rows,
# not the module.
# solution, with `reference.local_value()(rows).bfloat16()` as `reference.local_value().bfloat16()(rows)`

# %% looked_up: rounds the weight in place
# Not yet. The vectors are right, but `looked_up` changed the weight of the table, expected it unchanged: ...
# solution, with `return reference.local_value()(rows).bfloat16()`
# as `w = reference.local_value().weight.data; w.copy_(w.bfloat16()); return reference.local_value()(rows).bfloat16()`

# %% looked_up: with every copy of a row
# Not yet. The trainer received 640 bytes for 20 words, 8 of them different, expected 256.
# solution, with `rows, places = words.unique(return_inverse=True)` as `rows, places = words, ...`

# %% World(3): loss_on_server, looked_up

# %% World(3)
# Nobody has started RPC.

# %% loss_on_server: before RPC has been started
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

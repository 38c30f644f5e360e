# %% World(2)
# cell `rpc.init_rpc(`
# cell `text = datasets.help_texts()`
# cell `def loss_of(`
# cell `class Cut:`

# %% MyModel: solution
# Solved. Logits, hidden states and gradients equal those of one process, with two calls in each forward pass.

# %% MyModel
# Solved. Logits, hidden states and gradients equal those of one process, with two calls in each forward pass.
# solution, with `rpc_sync().forward(words)` as `rpc_async().forward(words).wait()`

# %% MyModel: by remote calls
# Solved. Logits, hidden states and gradients equal those of one process, with two calls in each forward pass.
# solution, with `self.table.rpc_sync().forward(words)` as `self.table.remote().forward(words).to_here()`

# %% MyModel: solution and the lesson s own
# Solved. Logits, hidden states and gradients equal those of one process, with two calls in each forward pass.
# solution

# %% MyModel
# Solved. Logits, hidden states and gradients equal those of one process, with two calls in each forward pass.
# solution

# %% MyModel: skeleton
# Not yet. `forward` called the server 0 times, expected 2 calls: first of the table, then of the decoder.

# %% MyModel: of a copy
# Not yet. `forward` fetched a module with `to_here`, expected calls of the module on the server:
# `rpc_sync().forward(...)`.
class MyModel(Cut):
    def forward(self, words, hidden=None):
        output, hidden = self.lstm(self.table.to_here()(words), hidden)
        return self.decoder.to_here()(output), hidden

# %% MyModel: the part itself
# Not yet. Rank 0 raised TypeError: 'RRefProxy' object is not callable. Name a method, such as
# `rpc_sync().forward(...)`.
# solution, with `self.table.rpc_sync().forward(words)` as `self.table.rpc_sync()(words)`

# %% MyModel: the RRef itself
# Not yet. Rank 0 raised TypeError: 'torch._C._distributed_rpc.PyRRef' object is not callable. Name a method, such as
# `rpc_sync().forward(...)`; on the owner, `local_value()` returns the object.
# solution, with `self.table.rpc_sync().forward(words)` as `self.table(words)`

# %% MyModel: a method of the RRef
# Not yet. Rank 0 raised AttributeError: 'torch._C._distributed_rpc.PyRRef' object has no attribute 'forward'. Name a
# method, such as `rpc_sync().forward(...)`; on the owner, `local_value()` returns the object.
# solution, with `self.table.rpc_sync().forward(words)` as `rpc.rpc_sync("server", self.table.forward, (words,))`

# %% MyModel: a future of the logits
# Not yet. `forward` returned a Future as the logits, expected a tensor.
# solution, with `self.decoder.rpc_sync().forward(output)` as `self.decoder.rpc_async().forward(output)`

# %% MyModel: the first half
# Not yet. In the first window, table and LSTM are right. Now the second half: `forward` called the server once,
# expected 2 calls.
class MyModel(Cut):
    def forward(self, words, hidden=None):
        vectors = self.table.rpc_sync().forward(words)
        output, hidden = self.lstm(vectors, hidden)
        return torch.zeros(*words.shape, vocabulary), hidden

# %% MyModel: the LSTM without the table
# Not yet. The hidden state after the first window differs from the hidden state of one process.
# answer "the first half", with `self.lstm(vectors` as `self.lstm(0 * vectors`

# %% MyModel
# Not yet. The hidden state after the second window differs from the hidden state of one process.
# solution, with `vectors, hidden` as `vectors`

# %% MyModel
# Not yet. The logits of the first window differ from the logits of one process.
# solution, with `forward(output)` as `forward(vectors)`

# %% MyModel
# Not yet. The hidden state after the first window differs from the hidden state of one process.
# solution, with `self.decoder.rpc_sync().forward(output), hidden` as `self.decoder.rpc_sync().forward(output), None`

# %% MyModel
# Not yet. `forward` called the server 3 times, expected 2 calls.
# solution, with `vectors = self.table` as `self.table.rpc_sync().forward(words); vectors = self.table`

# %% MyModel
# Not yet. The logits have no graph, expected a graph: without a graph there are no gradients.
# solution,
# with `self.decoder.rpc_sync().forward(output)` as `self.decoder.rpc_sync().forward(output).detach()`

# %% MyModel
# Not yet. `forward` returned a tensor of shape (5, 4, 1000), expected a pair: logits and hidden state.
# solution, with `self.decoder.rpc_sync().forward(output), hidden` as `self.decoder.rpc_sync().forward(output)`

# %% MyModel: on fewer ranks than all
# Not yet. Rank 0 has no function `MyModel`: run the cell that defines it, then this check.
# solution
import os

if os.environ["RANK"] == "0":
    del MyModel

# %% my_step: solution
# Solved. Losses, gradients, weights and hidden states equal those of one process in all 3 steps.

# %% my_step: a loss by hand
# Solved. Losses, gradients, weights and hidden states equal those of one process in all 3 steps.
def my_step(model, optimizer, words, targets, hidden):
    with dist_autograd.context() as number:
        logits, states = model.forward(words, hidden)
        loss = nn.functional.nll_loss(logits.log_softmax(2).reshape(-1, logits.shape[2]), targets.reshape(-1))
        dist_autograd.backward(number, [loss])
        optimizer.step(number)
        states = tuple(state.detach() for state in states)
    return float(loss), states

# %% my_step: the hidden state detached in front
# Not yet. The weights are right. The hidden state still has its graph, expected only its values: `detach` it.
def my_step(model, optimizer, words, targets, hidden):
    with dist_autograd.context() as context:
        if hidden is not None:
            hidden = [state.detach() for state in hidden]
        logits, hidden = model.forward(words, hidden)
        loss = loss_of(logits, targets)
        dist_autograd.backward(context, [loss])
        optimizer.step(context)
    return loss.item(), hidden

# %% my_step: skeleton
# Not yet. `model.forward` ran outside a context, expected a call inside `with dist_autograd.context() as context:`.

# %% my_step: forward in a context
# Not yet. The loss is right. The context ended without gradients, expected a gradient of each parameter:
# `dist_autograd.backward` is missing.
# solution, without `dist_autograd.backward(context, [loss])` and without `optimizer.step(context)`

# %% my_step: the first half
# Not yet. The first half is right: the gradients are the gradients of one process. `optimizer.step` was called
# 0 times in a step, expected once.
# solution, without `optimizer.step(context)`

# %% my_step
# Not yet. The loss is right. The context ended without gradients, expected a gradient of each parameter:
# `dist_autograd.backward` is missing.
# solution, without `dist_autograd.backward(context, [loss])`

# %% my_step: the optimizer after the context
# Not yet. Rank 0 raised RuntimeError: Could not find autograd context with id: .... Use a context inside its `with`
# block.
# solution, with `        optimizer.step(context)` as `    optimizer.step(context)`

# %% my_step: as in one process
# Not yet. `model.forward` ran outside a context, expected a call inside `with dist_autograd.context() as context:`.
def my_step(model, optimizer, words, targets, hidden):
    logits, hidden = model.forward(words, hidden)
    loss = loss_of(logits, targets)
    loss.backward()
    return loss.item(), [state.detach() for state in hidden]

# %% my_step: the optimizer first
# Not yet. After step 0 the weights of the table differ from the weights of one process.
def my_step(model, optimizer, words, targets, hidden):
    with dist_autograd.context() as context:
        logits, hidden = model.forward(words, hidden)
        loss = loss_of(logits, targets)
        optimizer.step(context)
        dist_autograd.backward(context, [loss])
    return loss.item(), [state.detach() for state in hidden]

# %% my_step
# Not yet. In step 1 the loss is ..., expected ...
# solution, with `model.forward(words, hidden)` as `model.forward(words)`

# %% my_step
# Not yet. In step 0 the loss is ..., expected ...
# solution, with `loss_of(logits, targets)` as `loss_of(logits, words)`

# %% my_step: the bug of PyTorch's tutorial
# Not yet. In step 0 the loss is ..., expected ...
# solution, with `loss_of(logits, targets)` as `nn.functional.cross_entropy(logits, torch.zeros(5, 7, dtype=int))`

# %% my_step
# Not yet. In step 0 the loss is right, but a gradient of the table differs from the gradient of one process.
# solution, with `backward(context, [loss])` as `backward(context, [2 * loss])`

# %% my_step
# Not yet. The weights are right. The hidden state still has its graph, expected only its values: `detach` it.
# solution, with `[state.detach() for state in hidden]` as `hidden`

# %% my_step
# Not yet. The weights are right. The hidden state after step 0 differs from the hidden state of one process.
# solution, with `[state.detach() for state in hidden]` as `None`

# %% my_step
# Not yet. `my_step` returned a tensor of shape () as the loss, expected a number: `loss.item()`.
# solution, with `return loss.item()` as `return loss`

# %% my_step
# Not yet. `my_step` returned None, expected a pair: the loss and the hidden state.
# solution, with `return loss.item(), [state.detach() for state in hidden]` as `return`

# %% my_step
# Not yet. In a step `model.forward` was called 2 times, expected once.
# solution, with `return loss.item()` as `return loss_of(model.forward(words, None)[0], targets).item()`

# %% my_step
# Not yet. Rank 0 raised AttributeError: '_Optimizer' object has no attribute 'zero_grad'. Zero nothing: the gradients
# disappear with the context.
# solution, with `optimizer.step(context)` as `optimizer.zero_grad()`

# %% my_step: a step without a context
# Not yet. Rank 0 raised TypeError: _Optimizer.step() missing 1 required positional argument: 'context_id'. `step` of a
# `DistributedOptimizer` takes the context.
# solution, with `optimizer.step(context)` as `optimizer.step()`

# %% set_training: solution
# Solved. All three parts switch between training and evaluation, and no module travels.

# %% set_training: by another method
# Solved. All three parts switch between training and evaluation, and no module travels.
def set_mode(part, mode):
    module = part.local_value()
    module.train() if mode else module.eval()

def set_training(model, training):
    futures = [rpc.rpc_async(part.owner(), set_mode, (part, training)) for part in (model.decoder, model.table)]
    torch.futures.wait_all(futures)
    model.lstm.training = training

# %% set_training: skeleton
# Not yet. After `set_training(model, False)`, the table has `training == True`, expected False.

# %% set_training: with train over RPC
# Not yet. In `set_training(model, False)` the table and the decoder travelled with all their parameters, expected no
# module in a message: `train` returns the module.
def set_training(model, training):
    for part in (model.table, model.decoder):
        part.rpc_sync().train(training)
    model.lstm.train(training)

# %% set_training: of a copy
# Not yet. After `set_training(model, False)`, the table has `training == True`, expected False.
def set_training(model, training):
    for part in (model.table, model.decoder):
        part.to_here().train(training)
    model.lstm.train(training)

# %% set_training
# Not yet. After `set_training(model, True)`, the LSTM has `training == False`, expected True.
# solution, with `.train(training)` as `.eval()`

# %% set_training
# Not yet. After `set_training(model, False)`, the decoder has `training == True`, expected False.
# solution, with `(model.table, model.decoder)` as `(model.table,)`

# %% set_training
# Not yet. After `set_training(model, False)`, the LSTM has `training == True`, expected False.
# solution, without `model.lstm.train(training)`

# %% set_training: without waiting
# Not yet. After `set_training(model, False)`, the table has `training == True`, expected False.
# solution, with `rpc.rpc_sync(part.owner()` as `rpc.rpc_async(part.owner()`

# %% clip: solution
# Solved. The gradients of both ranks equal those of one process, above the limit and below it.

# %% clip: skeleton
# Not yet. `clip` returned 0.0000, expected the norm of all gradients: 0.7308.

# %% clip: by the norms of the owners
# Solved. ...
import math

def norm_here(context):
    return torch.nn.utils.get_total_norm(list(dist_autograd.get_gradients(context).values())).item()

def shrink(context, factor):
    for gradient in dist_autograd.get_gradients(context).values():
        gradient *= factor

def clip(context, references, limit):
    owners = sorted({reference.owner_name() for reference in references})
    norm = math.hypot(*[rpc.rpc_sync(owner, norm_here, (context,)) for owner in owners])
    for owner in owners:
        rpc.rpc_sync(owner, shrink, (context, min(1.0, limit / norm)))
    return norm

# %% clip
# Solved. ...
# answer "by the norms of the owners", with `limit / norm` as `limit / (norm + 1e-6)`

# %% clip
# Solved. ...
import math

def square(context, reference):
    return dist_autograd.get_gradients(context)[reference.local_value()].square().sum()

def scale(context, reference, factor):
    dist_autograd.get_gradients(context)[reference.local_value()].mul_(factor)

def clip(context, references, limit):
    norm = sum(rpc.remote(r.owner(), square, (context, r)).to_here() for r in references).sqrt()
    if norm > limit:
        for r in references:
            rpc.rpc_sync(r.owner(), scale, (context, r, limit / norm))
    return norm

# %% clip
# Not yet. `clip` returned 0.5341, expected the norm of all gradients: 0.7308.
# solution, without `** 0.5`

# %% clip
# Not yet. With a norm of 0.7308 and a limit of 0.3654, the gradients on server have norm 0.2213 afterwards, expected
# 0.1107.
# solution, with `if norm > limit:` as `if norm < 0:`

# %% clip
# Not yet. With a norm of 0.7308 and a limit of 1.4617, the gradients on server have norm 0.4427 afterwards, expected
# 0.2213.
# solution, with `if norm > limit:` as `if True:`

# %% clip
# Not yet. `clip` returned None, expected the norm of all gradients, a number.
# solution, with `return norm` as `return None`

# %% clip
# Not yet. `clip` returned 0.2213, expected the ...
# solution, with `part.wait() for part in parts` as `part.wait() for part in parts[:1]`

# %% clip
# Not yet. Rank 0 raised NameError("name 'grads' is not ...
# solution, with `return sum((gradient**2)` as `return sum((grads**2)`

# %% clip: that turns the gradients round
# Not yet. The norms are right, but a gradient of the table differs from the gradient of one process.
# solution, with `limit / norm))` as `-limit / norm))`

# %% clip: by the norm of each rank
# Not yet. With a norm of 0.7308 and a limit of 0.3654, the gradients on server have norm 0.2213 ...
def clip_here(context, limit):
    gradients = dist_autograd.get_gradients(context).values()
    norm = sum((gradient**2).sum().item() for gradient in gradients) ** 0.5
    for gradient in gradients:
        gradient.mul_(min(1, limit / norm))
    return norm

def clip(context, references, limit):
    owners = {reference.owner_name() for reference in references}
    return sum(rpc.rpc_sync(owner, clip_here, (context, limit)) ** 2 for owner in owners) ** 0.5

# %% clip: that looks for all gradients on the trainer
# Not yet. Rank 0 raised KeyError: this rank has no gradient of that parameter; its owner has.
def clip(context, references, limit):
    gradients = dist_autograd.get_gradients(context)
    return sum((gradients[reference.to_here()] ** 2).sum() for reference in references) ** 0.5

# %% clip: an answer that is not there
# Not yet. Rank 0 has no function `clip`: run the cell that defines it, then this check.
globals().pop("clip", None)

# %% TwoLayers: solution
# Solved. Both layers compute and learn as nn.LSTM does, the second one on server.

# %% TwoLayers: skeleton
# Not yet. Parameter 4 of 8 is owned by trainer, expected server.

# %% TwoLayers: an RRef
# Solved. ...
def references_there(module):
    return [rpc.RRef(parameter) for parameter in module.local_value().parameters()]

class TwoLayers:
    def __init__(self, width, owner):
        self.here = nn.LSTM(width, width)
        self.there = rpc.remote(owner, nn.LSTM, (width, width))

    def forward(self, vectors, hidden=(None, None)):
        output, first = self.here(vectors, hidden[0])
        output, second = self.there.rpc_sync().forward(output, hidden[1])
        return output, [first, second]

    def parameter_rrefs(self):
        there = rpc.rpc_sync(self.there.owner(), references_there, (self.there,))
        return [rpc.RRef(parameter) for parameter in self.here.parameters()] + there

# %% TwoLayers: a future
# Solved. ...
def references_there(module):
    return [rpc.RRef(parameter) for parameter in module.local_value().parameters()]

class TwoLayers:
    def __init__(self, width, owner):
        self.here = nn.LSTM(width, width)
        self.there = rpc.remote(owner, nn.LSTM, (width, width))

    def forward(self, vectors, hidden=(None, None)):
        output, first = self.here(vectors, hidden[0])
        output, second = rpc.rpc_async(self.there.owner(), call, (self.there, output, hidden[1])).wait()
        return output, [first, second]

    def parameter_rrefs(self):
        there = rpc.rpc_sync(self.there.owner(), references_there, (self.there,))
        return [rpc.RRef(parameter) for parameter in self.here.parameters()] + there

def call(module, *arguments):
    return module.local_value()(*arguments)

# %% TwoLayers: both by RPC
# Solved. ...
# solution, with `self.first = nn.LSTM(width, width)` as `self.first = RemoteModule("trainer", nn.LSTM, (width, width))`
# and `[rpc.RRef(parameter) for parameter in self.first.parameters()]` as `self.first.remote_parameters()`

# %% TwoLayers: parameters that cannot travel
# Not yet. Rank 0 raised RuntimeError: TypeError: cannot pickle 'generator' object. RPC cannot send a generator: return a
# list.
class TwoLayers:
    def __init__(self, width, owner):
        self.here = nn.LSTM(width, width)
        self.there = rpc.remote(owner, nn.LSTM, (width, width))

    def parameter_rrefs(self):
        parameters = [*self.here.parameters(), *self.there.rpc_sync().parameters()]
        return [rpc.RRef(parameter) for parameter in parameters]

# %% TwoLayers: copies of the parameters
# Not yet. `parameter_rrefs` returned a Parameter at place 4, expected an RRef.
def parameters_there(module):
    return list(module.local_value().parameters())

class TwoLayers:
    def __init__(self, width, owner):
        self.here = nn.LSTM(width, width)
        self.there = rpc.remote(owner, nn.LSTM, (width, width))

    def parameter_rrefs(self):
        there = rpc.rpc_sync(self.there.owner(), parameters_there, (self.there,))
        return [rpc.RRef(parameter) for parameter in self.here.parameters()] + there

# %% TwoLayers
# Not yet. In the second window the output differs from nn.LSTM with two layers.
# solution, with `self.second(output, hidden[1])` as `self.second(output)`

# %% TwoLayers
# Not yet. After the first window the hidden state of layer 0 differs from nn.LSTM with two layers.
# solution, with `return output, (first, second)` as `return output, (second, first)`

# %% TwoLayers
# Not yet. In the first window the gradient of parameter 0 differs from nn.LSTM with two layers.
# solution, with `self.second(output, hidden[1])` as `self.second(output.detach(), hidden[1])`

# %% TwoLayers
# Not yet. `parameter_rrefs` returned 4 parameters, expected 8.
# solution, with `return local + self.second.remote_parameters()` as `return local`

# %% TwoLayers
# Not yet. Parameter 0 of 8 is owned by server, expected trainer.
# solution, with `return local + self.second.remote_parameters()` as `return self.second.remote_parameters() + local`

# %% TwoLayers
# Not yet. Parameter 4 of 8 has shape (16, 8), expected (16, 4).
# solution, with `nn.LSTM, (width, width)` as `nn.LSTM, (2 * width, width)`

# %% TwoLayers
# Not yet. In the first window `forward` returned a tensor of shape (5, 3, 4), expected a pair: the output, and the
# hidden states of both layers.
# solution, with `return output, (first, second)` as `return output`

# %% TwoLayers
# Not yet. In the first window the output has no graph, expected a graph: without a graph there are no gradients.
# solution, with `return output, (first, second)` as `return vectors, (first, second)`

# %% TwoLayers
# Not yet. In the first window `forward` returned other hidden states, expected two pairs of tensors, one for each
# layer.
# solution, with `return output, (first, second)` as `return output, first`

# %% TwoLayers
# Not yet. `parameter_rrefs` returned a Parameter at place 0, expected an RRef.
# solution, with `return local + self.second.remote_parameters()` as `return list(self.first.parameters()) * 2`

# %% TwoLayers
# Not yet. Rank 0 raised NameError: name 'vector' is not defined
# solution, with `output, first = self.first(vectors, hidden[0])` as `output, first = self.first(vector, hidden[0])`

# %% TwoLayers: on the server
# Not yet. With the owner `trainer`, the parameters are owned by server and trainer, expected all on the trainer: use
# the argument `owner`.
# solution, with `RemoteModule(owner,` as `RemoteModule("server",`

# %% TwoLayers: with to_here
# Solved. Both layers compute and learn as nn.LSTM does, the second one on server.
class Second(nn.LSTM):
    def references(self):
        return [rpc.RRef(parameter) for parameter in self.parameters()]
class TwoLayers:
    def __init__(self, width, owner):
        self.first = nn.LSTM(width, width)
        self.second = rpc.remote(owner, Second, args=(width, width))

    def forward(self, vectors, hidden=(None, None)):
        output, first = self.first(vectors, hidden[0])
        output, second = self.second.remote().forward(output, hidden[1]).to_here()
        return output, (first, second)

    def parameter_rrefs(self):
        return [*map(rpc.RRef, self.first.parameters()), *self.second.rpc_sync().references()]

# %% World(3)
# cell `rpc.init_rpc(`
# cell `text = datasets.help_texts()`
# cell `def loss_of(`

# %% clip: solution with a third rank
# Solved. ...
# solution

# %% clip: with the coefficient of clip_grad_norm_
# Solved. The gradients of both ranks equal those of one process, above the limit and below it.
def norm_there(context, references):
    gradients = dist_autograd.get_gradients(context)
    return torch.stack([gradients[r.local_value()].norm() for r in references])
def scale_there(context, references, factor):
    gradients = dist_autograd.get_gradients(context)
    for r in references:
        gradients[r.local_value()] *= factor
def clip(context, references, limit):
    norms = [rpc.rpc_sync(r.owner(), norm_there, args=(context, [r])) for r in references]
    norm = torch.cat(norms).norm()
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    for r in references:
        rpc.rpc_sync(r.owner(), scale_there, args=(context, [r], factor))
    return norm

# %% TwoLayers: solution with a third rank
# Solved. ... on spare2.
# solution

# %% TwoLayers: skeleton with a third rank
# Not yet. ...
# skeleton

# %% my_step: solution with a third rank
# Solved. ...
# solution

# %% World(2)
# A backward that waits in vain does not wait as long as in the notebook.
# cell `rpc.init_rpc(`, with `rpc_timeout=20` as `rpc_timeout=3`
# cell `text = datasets.help_texts()`
# cell `def loss_of(`
# cell `class Cut:`

# %% MyModel: that detaches the output
# Not yet. The backward pass waited in vain for a gradient, expected a gradient for each message: a tensor is detached.
# solution, with `forward(output)` as `forward(output.detach())`

# %% MyModel: that detaches the vectors
# Not yet. The backward pass waited in vain for a gradient, expected a gradient for each message: a tensor is detached.
# solution, with `self.lstm(vectors,` as `self.lstm(vectors.detach(),`

# %% MyModel: solution after a backward that has waited in vain
# Solved. Logits, hidden states and gradients equal those of one process, with two calls in each forward pass.
# solution

# %% MyModel: a context of its own
# Not yet. Rank 0 raised RuntimeError: Already have an autograd context id for this thread. Only one context can be
# open: the training step opens it, by `with`.
class MyModel(Cut):
    def forward(self, words, hidden=None):
        with dist_autograd.context():
            vectors = self.table.rpc_sync().forward(words)
            output, hidden = self.lstm(vectors, hidden)
            return self.decoder.rpc_sync().forward(output), hidden

# %% MyModel: transposed and right
# Solved. Logits, hidden states and gradients equal those of one process, with two calls in each forward pass.
class MyModel(Cut):
    def forward(self, words, hidden=None):
        vectors = self.table.rpc_sync().forward(words.t())
        output, hidden = self.lstm(vectors.transpose(0, 1), hidden)
        return self.decoder.rpc_async().forward(output.flatten(0, 1)).wait().unflatten(0, words.shape), hidden

# %% my_step: a message that has no part in the loss
# Not yet. Rank 0 raised RuntimeError: a call has timed out. A backward pass that waits for a gradient in vain ends like
# this.
def my_step(model, optimizer, words, targets, hidden):
    with dist_autograd.context() as context:
        logits, hidden = model.forward(words, hidden)
        for_the_log = model.decoder(torch.zeros(1, 1, 4, requires_grad=True))
        loss = loss_of(logits, targets)
        dist_autograd.backward(context, [loss])
        optimizer.step(context)
    return loss.item(), [state.detach() for state in hidden]

# %% my_step: solution after a backward that has waited in vain
# Solved. Losses, gradients, weights and hidden states equal those of one process in all 3 steps.
# solution

# %% my_step: a context that is kept
# Not yet. `my_step` left its context open, expected it to open the context by `with`, which also closes it.
_kept = []
def my_step(model, optimizer, words, targets, hidden):
    if not _kept:
        _kept.append(dist_autograd.context())
        _kept.append(_kept[0].__enter__())
    context = _kept[1]
    logits, hidden = model.forward(words, hidden)
    loss = loss_of(logits, targets)
    dist_autograd.backward(context, [loss])
    optimizer.step(context)
    return loss.item(), [state.detach() for state in hidden]

# %% my_step: a loss by permute
# Solved. Losses, gradients, weights and hidden states equal those of one process in all 3 steps.
def my_step(model, optimizer, words, targets, hidden):
    with dist_autograd.context() as number:
        logits, (h, c) = model.forward(words, hidden)
        loss = cross_entropy(logits.permute(0, 2, 1), targets)
        dist_autograd.backward(number, [loss], retain_graph=False)
        optimizer.step(number)
        return float(loss), (h.clone().detach(), c.data)

# %% my_step: two contexts
# Not yet. Rank 0 raised RuntimeError: Error on Node 0: Autograd context no longer valid! ...
def my_step(model, optimizer, words, targets, hidden):
    with dist_autograd.context() as context:
        logits, hidden = model.forward(words, hidden)
        loss = loss_of(logits, targets)
    with dist_autograd.context() as context:
        dist_autograd.backward(context, [loss])
        optimizer.step(context)
    return loss.item(), [state.detach() for state in hidden]

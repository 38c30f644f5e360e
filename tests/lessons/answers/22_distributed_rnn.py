# %% World(2)
# cell `rpc.init_rpc(`
# cell `text = datasets.help_texts()`
# cell `class Part:`
# cell `class Cut:`

# %% MyModel: solution
# Solved. Logits, hidden states and gradients are those of one process, by two calls in each forward.

# %% MyModel
# Solved. Logits, hidden states and gradients are those of one process, by two calls in each forward.
# solution, with `rpc_sync().forward(words)` as `rpc_async().forward(words).wait()`

# %% MyModel: by remote calls
# Solved. Logits, hidden states and gradients are those of one process, by two calls in each forward.
# solution, with `self.table.rpc_sync().forward(words)` as `self.table.remote().forward(words).to_here()`

# %% MyModel: solution and the lesson s own
# Solved. Logits, hidden states and gradients are those of one process, by two calls in each forward.
# solution

# %% MyModel
# Solved. Logits, hidden states and gradients are those of one process, by two calls in each forward.
# solution

# %% MyModel: skeleton
# Not yet. In one forward the server was asked 0 times, expected 2.

# %% MyModel
# Not yet. In one forward the server was asked 1 times, expected 2.
# solution, with `self.decoder.rpc_sync().forward(output.cpu())` as `torch.zeros(*words.shape, 1000)`

# %% MyModel
# Not yet. The logits of window 1 differ, expected those of one process.
# solution, with `vectors.to(self.here), hidden` as `vectors.to(self.here)`

# %% MyModel
# Not yet. The logits of window 0 differ, expected those of one process.
# solution, with `output.cpu()` as `vectors`

# %% MyModel
# Not yet. The hidden state after window 0 differs, expected that of one process.
# solution,
# with `self.decoder.rpc_sync().forward(output.cpu()), hidden` as `self.decoder.rpc_sync().forward(output.cpu()), None`

# %% MyModel
# Not yet. The logits have no graph, expected one: nothing can be learnt from them.
# solution,
# with `self.decoder.rpc_sync().forward(output.cpu())` as `self.decoder.rpc_sync().forward(output.cpu()).detach()`

# %% MyModel
# Not yet. `forward` returned a tensor of shape (5, 4, 1000), expected a pair: logits and hidden state.
# solution,
# with `self.decoder.rpc_sync().forward(output.cpu()), hidden` as `self.decoder.rpc_sync().forward(output.cpu())`

# %% MyModel: on fewer ranks than all
# Not yet. Rank 0 has no function `MyModel`: run the cell that defines it, then this check.
del MyModel

# %% clip: solution
# Solved. The gradients of both ranks are those of one process, above the limit and below it.

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
# solution, with `gradients[reference.local_value()] **` as `grads ** `

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

# %% TwoLayers
# Not yet. In window 1 the output is not that of nn.LSTM with two layers.
# solution, with `self.second(output, hidden[1])` as `self.second(output)`

# %% TwoLayers
# Not yet. After window 0 the hidden state of layer 0 is not that of nn.LSTM with two layers.
# solution, with `return output, (first, second)` as `return output, (second, first)`

# %% TwoLayers
# Not yet. In window 0 the gradient of parameter 0 is not that of nn.LSTM with two layers.
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
# Not yet. In window 0 `forward` returned a tensor of shape (5, 3, 4), expected a pair: output, hidden states of both.
# solution, with `return output, (first, second)` as `return output`

# %% TwoLayers
# Not yet. In window 0 the output has no graph, so nothing can be learnt from it.
# solution, with `return output, (first, second)` as `return vectors, (first, second)`

# %% TwoLayers
# Not yet. In window 0 the hidden states are not two pairs of tensors, one for each layer.
# solution, with `return output, (first, second)` as `return output, first`

# %% TwoLayers
# Not yet. `parameter_rrefs` returned a Parameter at place 0, expected an RRef.
# solution, with `return local + self.second.remote_parameters()` as `return list(self.first.parameters()) * 2`

# %% TwoLayers
# Not yet. Rank 0 raised NameError: name 'vector' is not defined
# solution, with `output, first = self.first(vectors, hidden[0])` as `output, first = self.first(vector, hidden[0])`

# %% World(3)
# cell `rpc.init_rpc(`

# %% clip: solution with a third rank
# Solved. ...
# solution

# %% TwoLayers: solution with a third rank
# Solved. ... on spare2.
# solution

# %% TwoLayers: skeleton with a third rank
# Not yet. ...
# skeleton

# %% World(2)
# A backward that waits in vain does not wait as long as in the notebook.
# cell `rpc.init_rpc(`, with `rpc_timeout=20` as `rpc_timeout=3`
# cell `text = datasets.help_texts()`
# cell `class Part:`
# cell `class Cut:`

# %% MyModel: that detaches the output
# Not yet. Backward waited in vain for a gradient, expected one for each message: something is detached.
# solution, with `output.cpu()` as `output.detach().cpu()`

# %% MyModel: that detaches the vectors
# Not yet. Backward waited in vain for a gradient, expected one for each message: something is detached.
# solution, with `vectors.to(` as `vectors.detach().to(`

# %% MyModel: solution after a backward that has waited in vain
# Solved. Logits, hidden states and gradients are those of one process, by two calls in each forward.
# solution

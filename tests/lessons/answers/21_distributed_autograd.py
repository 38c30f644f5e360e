# %% World(4)
# cell `init_rpc(`
from torch import nn

# %% backward_by_hand: solution
# Solved. Both workers hold the gradients of one process, and no context was opened.

# %% backward_by_hand: skeleton
# Not yet. On worker0 the gradient of 0.weight is None, unlike those of one process, ...

# %% backward_by_hand: cut by detach
# Solved. ...
kept = []

def forward_there(second, hidden):
    kept[:] = hidden.requires_grad_(), second.local_value()(hidden)
    return kept[1].detach()

def backward_there(gradient):
    torch.autograd.backward(kept[1], gradient)
    return kept[0].grad

def backward_by_hand(first, second, inputs, labels):
    hidden = first(inputs)
    scores = rpc.rpc_sync("worker1", forward_there, (second, hidden.detach())).requires_grad_()
    loss = torch.nn.functional.cross_entropy(scores, labels)
    (gradient,) = torch.autograd.grad(loss, scores)
    hidden.backward(rpc.rpc_async("worker1", backward_there, (gradient,)).wait())

# %% backward_by_hand: loss on worker 1
# Solved. ...
def gradient_of(second, hidden, labels):
    hidden.requires_grad_()
    torch.nn.functional.cross_entropy(second.local_value()(hidden), labels).backward()
    return hidden.grad

def backward_by_hand(first, second, inputs, labels):
    hidden = first(inputs)
    hidden.backward(rpc.rpc_sync("worker1", gradient_of, (second, hidden.detach(), labels)))

# %% backward_by_hand: keeps the tensors of the first call
# Not yet. Rank 0 raised RuntimeError... backward through the graph a second time ... Does it differentiate a graph
# twice, or keep a tensor of an earlier call?
# solution, with `kept = {}` as `kept = []`
# and `kept["hidden"], kept["scores"] = hidden, second.local_value()(hidden)`
# as `kept.extend([hidden, second.local_value()(hidden)])`
# and `return kept["scores"]` as `return kept[-1]` and `kept["scores"]` as `kept[1]` and `kept["hidden"]` as `kept[0]`

# %% backward_by_hand: ignores the gradient
# Not yet. On worker0 the gradient of 0.weight differs from those of one process, ...
# solution, with `kept["scores"].backward(gradient)` as `kept["scores"].sum().backward()`

# %% backward_by_hand: stops at worker0
# Not yet. On worker0 the gradient of 0.weight is None, unlike those of one process, ...
# solution, without `hidden.backward`

# %% backward_by_hand: only passes on
# Not yet. On worker1 the gradient of 2.weight is None, unlike those of one process, ...
# solution,
# with `kept["scores"].backward(gradient)`
# as `kept["hidden"].grad, = torch.autograd.grad(kept["scores"], kept["hidden"], gradient)`

# %% backward_by_hand: sum
# Not yet. On worker0 the gradients are 12.00 times those of one process, ...
# solution, with `cross_entropy(scores, labels)` as `cross_entropy(scores, labels, reduction='sum')`

# %% backward_by_hand: misspelt
# Not yet. Rank 0 raised NameError: name 'score' is not defined
# solution, with `scores.grad,` as `score.grad,`

# %% backward_by_hand: with a context
# Not yet. You opened 1 context, expected plain RPC without a context.
def keep(context_id):
    for parameter, gradient in dist_autograd.get_gradients(context_id).items():
        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

def accumulate(first, second, batches):
    samples = sum(len(labels) for _, labels in batches)
    for inputs, labels in batches:
        with dist_autograd.context() as context_id:
            scores = second.rpc_sync().forward(first(inputs))
            loss = torch.nn.functional.cross_entropy(scores, labels, reduction="sum") / samples
            dist_autograd.backward(context_id, [loss])
            keep(context_id)
            rpc.rpc_sync("worker1", keep, args=(context_id,))

def backward_by_hand(first, second, inputs, labels):
    accumulate(first, second, [(inputs, labels)])

# %% accumulate: solution
# Solved. Both workers hold the gradients of all samples, from 3 contexts.

# %% accumulate: skeleton
# Not yet. On worker0 the gradient of 0.weight is None, unlike those of one process, ...

# %% accumulate: means by their weight
# Solved. ...
# solution, with `labels, reduction="sum"` as `labels) * len(labels`

# %% accumulate: from zeros
# Solved. ...
def keep(context_id):
    for parameter, gradient in dist_autograd.get_gradients(context_id).items():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        parameter.grad += gradient

def accumulate(first, second, batches):
    samples = sum(len(labels) for _, labels in batches)
    for inputs, labels in batches:
        with dist_autograd.context() as context_id:
            scores = second.rpc_sync().forward(first(inputs))
            loss = torch.nn.functional.cross_entropy(scores, labels, reduction="sum") / samples
            dist_autograd.backward(context_id, [loss])
            keep(context_id)
            rpc.rpc_sync("worker1", keep, args=(context_id,))

# %% accumulate: both by RPC
# Solved. ...
def keep(context_id):
    for parameter, gradient in dist_autograd.get_gradients(context_id).items():
        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

def accumulate(first, second, batches):
    samples = sum(len(labels) for _, labels in batches)
    for inputs, labels in batches:
        with dist_autograd.context() as context_id:
            scores = second.rpc_sync().forward(first(inputs))
            loss = torch.nn.functional.cross_entropy(scores, labels, reduction="sum") / samples
            dist_autograd.backward(context_id, [loss])
            rpc.rpc_async("worker0", keep, args=(context_id,)).wait()
            rpc.rpc_sync("worker1", keep, args=(context_id,))

# %% accumulate: not on worker0
# Not yet. On worker0 the gradient of 0.weight is None, unlike those of one process, ...
# answer "both by RPC", without `rpc.rpc_async("worker0", keep, args=(context_id,)).wait()`

# %% accumulate: not on worker1
# Not yet. On worker1 the gradient of 2.weight is None, unlike those of one process, ...
# solution, with `rpc.rpc_sync("worker1", keep, args=(context_id,))` as `pass`

# %% accumulate: the last one
# Not yet. On worker0 the gradient of 0.weight differs from those of one process, ...
# solution, without ` if parameter.grad is None else parameter.grad + gradient`

# %% accumulate: mean of means
# Not yet. On worker0 the gradient of 0.weight differs from those of one process, ...
# solution,
# with `torch.nn.functional.cross_entropy(scores, labels, reduction="sum") / samples`
# as `torch.nn.functional.cross_entropy(scores, labels) / len(batches)`

# %% accumulate: sum
# Not yet. On worker0 the gradients are 15.00 times those of one process, ...
# solution,
# with `torch.nn.functional.cross_entropy(scores, labels, reduction="sum") / samples`
# as `torch.nn.functional.cross_entropy(scores, labels, reduction="sum")`

# %% accumulate: in one
# Not yet. You opened 1 context, expected 3, one for each batch.
# solution, with `for inputs, labels in batches:` as `for inputs, labels in [map(torch.cat, zip(*batches))]:`

# %% train_frozen: solution
# Solved. `first` made its step, and worker1 computed no gradient for the weights of `second`.

# %% train_frozen: skeleton
# Not yet. The weights of `first` did not change, expected a step.

# %% train_frozen: each parameter
# Solved. ...
def freeze(module):
    for parameter in module.local_value().parameters():
        parameter.requires_grad = False

def train_frozen(first, second, inputs, labels):
    rpc.rpc_sync("worker1", freeze, args=(second,))
    references = [rpc.RRef(parameter) for parameter in first.parameters()]
    optimizer = DistributedOptimizer(torch.optim.SGD, references, lr=0.1)
    with dist_autograd.context() as context_id:
        scores = second.rpc_sync().forward(first(inputs))
        loss = torch.nn.functional.cross_entropy(scores, labels)
        dist_autograd.backward(context_id, [loss])
        optimizer.step(context_id)

# %% train_frozen: by the RRef
# Solved. ...
# solution, with `rpc.rpc_sync("worker1", freeze, args=(second,))` as `second.rpc_sync().requires_grad_(False)`

# %% train_frozen: by remote
# Solved. ...
# solution,
# with `rpc.rpc_sync("worker1", freeze, args=(second,))` as `rpc.remote("worker1", freeze, (second,)).to_here()`

# %% train_frozen: leaves it out
# Not yet. worker1 computed gradients for the weights of `second`, expected none.
# solution, with `rpc.rpc_sync("worker1", freeze, args=(second,))` as `pass`

# %% train_frozen: freezes a copy
# Not yet. worker1 computed gradients for the weights of `second`, expected none.
# solution, with `rpc.rpc_sync("worker1", freeze, args=(second,))` as `second.to_here().requires_grad_(False)`

# %% train_frozen: at home
# Not yet. worker1 did not run `second`, expected one call.
# solution, with `second.rpc_sync().forward` as `second.to_here()`

# %% train_frozen: too slow
# Not yet. The weights of `first` differ, expected the weights of one process after the step.
# solution, with `lr=0.1` as `lr=0.01`

# %% train_frozen: detached
# Not yet. Rank 0 raised RuntimeError: requires_grad not set on root
# solution, with `first(inputs)` as `first(inputs).detach()`

# %% train_frozen: no step
# Not yet. The weights of `first` did not change, expected a step.
# solution, with `optimizer.step(context_id)` as `pass`

# %% train_frozen: that trains second
# Not yet. The weights of `second` changed, expected them to stay.
def parameters_there(module):
    return [rpc.RRef(parameter) for parameter in module.local_value().parameters()]

def train_frozen(first, second, inputs, labels):
    references = [rpc.RRef(parameter) for parameter in first.parameters()]
    references += rpc.rpc_sync("worker1", parameters_there, args=(second,))
    optimizer = DistributedOptimizer(torch.optim.SGD, references, lr=0.1)
    with dist_autograd.context() as context_id:
        scores = second.rpc_sync().forward(first(inputs))
        dist_autograd.backward(context_id, [torch.nn.functional.cross_entropy(scores, labels)])
        optimizer.step(context_id)

# %% my_step: skeleton
# Not yet. No context held the gradients of the weights on worker1, expected a forward and a backward pass in a
# context.

# %% my_step: solution
# Solved. After 2 steps the weights on worker1 are those of one process.

# %% my_step: returns the tensor
# Solved. After 2 steps the weights on worker1 are those of one process.
def my_step(net, optimizer, images, labels):
    with dist_autograd.context() as context_id:
        scores = net.rpc_sync().forward(images)
        loss = nn.functional.cross_entropy(scores, labels)
        dist_autograd.backward(context_id, [loss])
        optimizer.step(context_id)
        return loss

# %% my_step
# Solved. After 2 steps the weights on worker1 are those of one process.
# answer "returns the tensor",
# with `scores = net.rpc_sync().forward(images)` as `scores = net.rpc_async().forward(images).wait()`
# and `return loss` as `return loss.item()`

# %% my_step
# Solved. After 2 steps the weights on worker1 are those of one process.
# answer "returns the tensor",
# with `scores = net.rpc_sync().forward(images)` as `scores = net.remote().forward(images).to_here()`
# and `return loss` as `return loss.detach()`

# %% my_step: clears old gradients
# Solved. After 2 steps the weights on worker1 are those of one process.
# answer "returns the tensor",
# with `scores = net.rpc_sync().forward(images)` as `net.rpc_sync().zero_grad(); scores = net.rpc_sync().forward(images)`
# and `return loss` as `return loss.item()`

# %% my_step: without a step
# Not yet. The first half is right: the context holds the gradients of one process. The weights on worker1 did not
# change, expected 2 steps of the optimizer, each in the same context.
def my_step(net, optimizer, images, labels):
    with dist_autograd.context() as context_id:
        scores = net.rpc_sync().forward(images)
        loss = nn.functional.cross_entropy(scores, labels)
        dist_autograd.backward(context_id, [loss])
        return loss.item()

# %% my_step
# Not yet. After 2 steps the weights on worker1 differ, expected the weights of one process.
# answer "returns the tensor", with `return loss` as `optimizer.step(context_id); return loss.item()`

# %% my_step
# Not yet. After 2 steps the weights on worker1 differ, expected the weights of one process.
# answer "returns the tensor",
# with `nn.functional.cross_entropy(scores, labels)` as `nn.functional.cross_entropy(scores, labels) * len(labels)`
# and `return loss` as `return loss.item()`

# %% my_step
# Not yet. Step 0 returned None, expected the loss, ...
# answer "returns the tensor", without `return loss`

# %% my_step
# Not yet. A step moved 1152 bytes of tensors in calls, expected 576 at most: the inputs and the scores.
# answer "without a step",
# with `scores = net.rpc_sync().forward(images)`
# as `scores = net.rpc_sync().forward(images); spare = net.rpc_sync().forward(images)`
# and `dist_autograd.backward(context_id, [loss])`
# as `dist_autograd.backward(context_id, [loss + 0 * spare.sum()]); optimizer.step(context_id)`

# %% my_step
# Not yet. worker1 did not run `forward`, expected one call in each step.
# answer "returns the tensor", with `scores = net.rpc_sync().forward(images)` as `scores = net.to_here()(images)`
# and `return loss` as `return loss.item()`

# %% my_step
# Not yet. Rank 0 raised RuntimeError: ...
# answer "without a step",
# with `dist_autograd.backward(context_id, [loss])` as `loss.backward(); optimizer.step(context_id)`

# %% my_step: half of the loss, without a step
# Not yet. The gradients in the context differ, expected the gradients of one process.
# answer "without a step", with `cross_entropy(scores, labels)` as `cross_entropy(scores, labels) / 2`

# %% my_step: forward outside of the context
# Not yet. No context held the gradients of the weights on worker1, expected a forward and a backward pass in a
# context.
def my_step(net, optimizer, images, labels):
    scores = net.rpc_sync().forward(images)
    loss = nn.functional.cross_entropy(scores, labels)
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [loss])
        optimizer.step(context_id)
    return loss.item()

# %% my_step: a context for each half
# Not yet. The first half is right: the context holds the gradients of one process. The weights on worker1 did not
# change, expected 2 steps of the optimizer, each in the same context.
def my_step(net, optimizer, images, labels):
    with dist_autograd.context() as context_id:
        scores = net.rpc_sync().forward(images)
        loss = nn.functional.cross_entropy(scores, labels)
        dist_autograd.backward(context_id, [loss])
    with dist_autograd.context() as context_id:
        optimizer.step(context_id)
    return loss.item()

# %% my_step: a bare tensor
# Not yet. Rank 0 raised TypeError: backward(): incompatible function arguments. ...
# answer "without a step", with `[loss]` as `loss`

# %% my_step: context by another name
# Solved. ...
from torch.distributed.autograd import backward, context

def my_step(net, optimizer, images, labels):
    with context() as number:
        loss = nn.functional.cross_entropy(net.rpc_sync().forward(images), labels)
        backward(number, [loss])
        optimizer.step(number)
    return float(loss)

# %% my_step: with an optimizer of its own
# Not yet. After 2 steps the weights on worker1 differ, expected the weights of one process.
def parameters_there(net):
    return [rpc.RRef(parameter) for parameter in net.local_value().parameters()]

def my_step(net, optimizer, images, labels):
    references = rpc.rpc_sync("worker1", parameters_there, args=(net,))
    with dist_autograd.context() as context_id:
        scores = net.rpc_sync().forward(images)
        loss = nn.functional.cross_entropy(scores, labels)
        dist_autograd.backward(context_id, [loss])
        DistributedOptimizer(torch.optim.SGD, references, lr=0.3).step(context_id)
    return loss.item()

# %% my_step: two steps
# Not yet. After 2 steps the weights on worker1 differ, expected the weights of one process.
# answer "without a step", with `return loss.item()` as `optimizer.step(context_id); optimizer.step(context_id)`

# %% my_step: after the context
# Not yet. Rank 0 raised RuntimeError: ...
def my_step(net, optimizer, images, labels):
    with dist_autograd.context() as context_id:
        scores = net.rpc_sync().forward(images)
        loss = nn.functional.cross_entropy(scores, labels)
        dist_autograd.backward(context_id, [loss])
    optimizer.step(context_id)
    return loss.item()

# %% World(4)
# A backward that waits in vain does not wait as long as in the notebook.
# cell `init_rpc(`, with `rpc_timeout=10` as `rpc_timeout=3`

# %% accumulate: that asks for parameters in the context
# Not yet. Rank 0 raised RuntimeError: a call has timed out. A backward that waits for a gradient in vain ends like
# this.
# solution, with `scores = second` as `rpc.rpc_sync("worker1", weight, args=(second,)); scores = second`
def weight(second):
    return second.local_value()[0].weight.sum()

# %% accumulate: solution after a backward that has waited in vain
# Solved. ...
# solution

# %% accumulate: that leaves a context open
# Not yet. Rank 0 raised RuntimeError: Already have an autograd context id for this thread.
def accumulate(first, second, batches):
    dist_autograd._new_context()

# %% World(4)
# Nobody has started RPC.

# %% train_frozen: before RPC has been started
# Not yet. Rank 0 raised RuntimeError: RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.
def train_frozen(*arguments):
    pass

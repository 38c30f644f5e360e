"""The lesson distributed_autograd, broken on purpose."""

MUTANTS = {
    "without a context the answer has a history": (
        'outside = rpc.rpc_sync("worker1", scale, args=(w,))',
        "outside = 2 * w",
    ),
    "backward fills w.grad": (
        "dist_autograd.backward(context_id, [y**2])",
        "dist_autograd.backward(context_id, [y**2]); ((w * 2) ** 2).backward()",
    ),
    "a second backward pass starts from zero": (
        "dist_autograd.backward(context_id, [loss], retain_graph=True)\n",
        "pass\n",
    ),
    "each rank has its own half of a number": (
        "{message: place(function) for message, function in sent.items()}",
        "{message + rank: place(function) for message, function in sent.items()}",
    ),
    "the weight of rank 0 sends nothing": (
        'loss = rpc.rpc_sync("worker1", scale, args=(w,)) ** 2\n    of_rank_0',
        'loss = rpc.rpc_sync("worker1", scale, args=(w.detach(),)) ** 2\n    of_rank_0',
    ),
    "a thread of the pool records nothing": ("through, args=(y,))", "through, args=(y.detach(),))"),
    "a tensor that needs a gradient is like one that does not": ("call(torch.neg, w.detach())", "call(torch.neg, w)"),
    "another thread is in the context": ("other_thread.submit(call, scale, w).result()", "call(scale, w)"),
    "a parameter is fetched like a tensor": (
        '"parameter.to_here()": parameter.to_here',
        '"parameter.to_here()": tensor.to_here',
    ),
    "contexts share their gradients": (
        'rpc.rpc_sync("worker0", scale, args=(torch.tensor(rank + 1.0),))',
        'rpc.rpc_sync("worker0", scale, args=(torch.tensor(n * (n + 1) / 2),))',
    ),
    "backward does not wait for the log": ("for_the_log = theirs.to_here()", "for_the_log = torch.zeros(())"),
    "old gradients do no harm": ("for head in (0, 1):", "for head in (0, 0):"),
    "nothing clears old gradients": ("net.rpc_sync().zero_grad()  # on B", "pass"),
    "training leaves the model on B alone": (
        "        optimizer.step(context_id)\n    return loss.item()",
        "    return loss.item()",
    ),
    "B trains on other images": (
        "losses = [float(step(net, optimizer, images[batch], labels[batch]))",
        "losses = [float(step(net, optimizer, images[batch] / 2, labels[batch]))",
    ),
    "local training accumulates its gradients": ("    local_optimizer.zero_grad()\n", ""),
    "the loss of the graph is no square": (
        'loss = rpc.rpc_sync("worker1", scale, args=(w,)) ** 2\n    of_rank_0',
        'loss = rpc.rpc_sync("worker1", scale, args=(w,)) * 2\n    of_rank_0',
    ),
    "the gradients of worker 0 are on every rank": (
        'on_worker_0 = rpc.rpc_sync("worker0", gradient, args=(context_id,)).item()',
        "on_worker_0 = gradient(context_id)",
    ),
    "gradients of the images come back": (
        "scores = net.rpc_sync().forward(images[batch])",
        "scores = net.rpc_sync().forward(images[batch].requires_grad_())",
    ),
    "the weights that are fetched are new ones": ("trained.load_state_dict(weights)", "trained.state_dict()"),
    "the timeout of the backward pass is not shorter": ("rpc._set_rpc_timeout(5)\n", ""),
    "the figure shows the weight of the rank before": (
        "zip(range(1, WORLD_SIZE + 1), chain_gradients)",
        "zip(range(WORLD_SIZE), chain_gradients)",
    ),
    "the model on B is on A": (
        'net = rpc.remote("worker1", Net, args=(SEED,))',
        'net = rpc.remote("worker0", Net, args=(SEED,))',
    ),
    "a fetch from another thread is recorded too": (
        "ThreadPoolExecutor().submit(theirs.to_here).result()",
        "theirs.to_here()",
    ),
    "a log that the loss ignores does no harm": (
        '"log ignored": backward_with_a_log(None)',
        '"log ignored": backward_with_a_log(0)',
    ),
    "both results are from the context": ('"without a context": outside', '"without a context": inside'),
}

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
    "each rank has its own half of a number": (
        "sent = {message: functions.index(function) for",
        "sent = {message + rank: functions.index(function) for",
    ),
    "a server thread records nothing": ("through, args=(y,))", "through, args=(y.detach(),))"),
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
    "a second backward starts anew": ("for retain in (True, True, False):", "for retain in (True, False):"),
    "the graph is always kept": ("retain_graph=retain)", "retain_graph=True)"),
    "backward does not wait for the log": ("for_the_log = theirs.to_here()", "for_the_log = torch.zeros(())"),
    "the optimizer makes no step": (
        "        optimizer.step(context_id)\n    local_optimizer.zero_grad()",
        "    local_optimizer.zero_grad()",
    ),
    "old gradients do no harm": ("for uses_it in (True, False):", "for uses_it in (True,):"),
    "training leaves the model on B alone": (
        "        optimizer.step(context_id)\n    return loss.item()",
        "    return loss.item()",
    ),
    "all images travel": (
        "        scores = net.rpc_sync().forward(images)\n",
        "        scores = net.rpc_sync().forward(images.repeat(10, 1))[: len(images)]\n",
    ),
    "gradients of the images come back": (
        "net.rpc_sync().forward(images[batches[0]])",
        "net.rpc_sync().forward(images[batches[0]].requires_grad_())",
    ),
    "the weights that are pulled are new ones": ("pulled.load_state_dict(weights)", "pulled.state_dict()"),
}

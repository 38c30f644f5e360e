"""The lesson tensor_parallel, broken on purpose."""

MUTANTS = {
    "by rows a rank has the whole numbers": ("total = all_reduce(by_rows)", "total = by_rows"),
    "every rank adds the bias to its share": (
        "        return self.leave(F.linear(x, self.weight)) + self.bias",
        "        return self.leave(F.linear(x, self.weight, self.bias))",
    ),
    "a rank keeps all rows": (
        "        self.weight = own(rows_of(layer))",
        "        self.weight = own(layer.weight / n)",
    ),
    "the way back of g is an all_reduce": (
        "f, g = Enter.apply, Leave.apply",
        "f, g = Enter.apply, SumBothWays.apply",
    ),
    "nothing has to be added up where x enters": ("f, g = Enter.apply, Leave.apply", "f, g = nothing, Leave.apply"),
    "the gradient of one rank is the whole gradient": (
        "        return all_reduce(gradient)\n\ndef loss_of(y):",
        "        return gradient\n\ndef loss_of(y):",
    ),
    "a block sends each sum once more": (
        "    total = x.clone()\n    dist.all_reduce(total)\n",
        "    total = x.clone()\n    dist.all_reduce(total.clone())\n    dist.all_reduce(total)\n",
    ),
    "nothing is sent while it is measured": (
        "        loss_of(block(x)).backward()\n        dist.barrier()\n    return carried.bytes / 2",
        "        dist.barrier()\n    loss_of(block(x)).backward()\n    return carried.bytes / 2",
    ),
    "a rank looks up tokens of others, too": ("return g(rows * mine.unsqueeze(-1))", "return g(rows)"),
    "each rank subtracts its own largest logit": (
        "largest = largest_of_all(logits.amax(-1))",
        "largest = logits.detach().amax(-1)",
    ),
    "every rank has the logit of the target": ("g(of_target * mine)", "g(of_target)"),
    "the loss gathers the logits": (
        "    logits = logits - largest.unsqueeze(-1)",
        "    dist.all_gather([torch.empty_like(logits) for _ in range(n)], logits.contiguous())\n"
        "    logits = logits - largest.unsqueeze(-1)",
    ),
    "f waits for its sum before the second product": ("        if not context.overlap:\n", "        if True:\n"),
    "the sum of f is not needed": (
        "        work = dist.all_reduce(of_x, async_op=True)\n",
        "        work = dist.barrier(async_op=True)\n",
    ),
    "the largest logit is not subtracted": (
        "    logits = logits - largest.unsqueeze(-1)",
        "    logits = logits - 0 * largest.unsqueeze(-1)",
    ),
    "the links carry eight times fewer bits": (
        "network.limit(world, 8 * 2 * (n - 1) / n * sum_bytes / travel)",
        "network.limit(world, 2 * (n - 1) / n * sum_bytes / travel)",
    ),
    "the waits of the first run are those of both runs": (
        "    return min(seconds), waits[-12:]",
        "    return min(seconds), waits[:12]",
    ),
    "the output layer needs no f": ("model.enter = f\n", "model.enter = nothing\n"),
    "every rank has all heads, but narrower ones": (
        "return x.unflatten(-1, (-1, w // heads)).transpose(1, 2)",
        "return x.unflatten(-1, (heads, -1)).transpose(1, 2)",
    ),
    "a copy of x's gradient is summed": (
        "work = dist.all_reduce(of_x, async_op=True)",
        "work = dist.all_reduce(of_x.clone(), async_op=True)",
    ),
    "the largest logit has a gradient": ("largest = x.detach().clone()", "largest = x.clone()"),
}

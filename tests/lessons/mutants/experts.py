"""The lesson experts, broken on purpose."""

MUTANTS = {
    "the gates are not part of the output": (
        "scaled = gates[token, choice, None] * expert(tokens[token])",
        "scaled = expert(tokens[token])",
    ),
    "the router learns without gates": (
        "ungated = sum((chosen == number) * one",
        "ungated = sum(gates * (chosen == number) * one",
    ),
    "a rank sends as many rows to each rank": (
        "sent = torch.arange(n)\nreceived",
        "sent = torch.ones(n, dtype=torch.int64)\nreceived",
    ),
    "every expert has the rows of its own rank": (
        "    return combine(expert(rows), plan)\n\ndef expert_parallel",
        "    return expert(tokens)\n\ndef expert_parallel",
    ),
    "the backward pass of an exchange keeps the splits": (
        "        return exchange(gradient, context.received, context.sent), None, None",
        "        return torch.zeros(sum(context.sent), *gradient.shape[1:]), None, None",
    ),
    "outputs stay in the order of the experts": ("    return rows[order.argsort()]", "    return rows"),
    "an expert gets its gradient once": (
        "    output.square().mean().backward()\nprint",
        "    (output.square().mean() / n).backward()\nprint",
    ),
    "an expert gets its gradient n times, after all": (
        "(output.square().mean() / n).backward()\n    dist",
        "output.square().mean().backward()\n    dist",
    ),
    "the gradient of the router is complete on each rank": ("    dist.all_reduce(router.weight.grad)\n", ""),
    "the library sends no gradients": (
        "return deprecated.all_to_all_single(result, rows, received, sent)",
        "return exchange(rows, sent, received) + 0 * rows.sum()",
    ),
    "tensor parallelism leaves partial sums": (
        "    forward = staticmethod(lambda context, x: all_reduce(x))",
        "    forward = staticmethod(lambda context, x: x.clone())",
    ),
    "tensor parallelism has the tokens of one rank": (
        "    tokens, lambda x: tensor_parallel(x, router, experts)",
        "    tokens[:many], lambda x: tensor_parallel(x, router, experts)",
    ),
    "the loads are balanced": ("chosen = chosen.squeeze(1)\nrows, plan", "chosen = torch.arange(T) % n\nrows, plan"),
    "the capacity is not rounded up": ("capacity = math.ceil(1.25 * T / n)", "capacity = T // n"),
    "a capacity drops nothing": ("<= capacity\n", "<= n * capacity\n"),
    "a dropped token gets an output": ("limited = torch.zeros_like(tokens)", "limited = tokens.clone()"),
    "the router of the training prefers no expert": ("router.bias.zero_()[0] = 3", "router.bias.zero_()"),
    "the loss without a factor balances": ("train(alpha=0)", "train(alpha=1)"),
    "the balancing loss does nothing": ("train(alpha=1)", "train(alpha=0)"),
    "the balancing loss looks at the probabilities only": (
        "return n * (shares * probabilities.mean(dim=0)).sum()",
        "return n * probabilities.mean(dim=0).sum()",
    ),
    "the shares count the tokens of one rank": (
        "shares = all_reduce(counts) / (n * len(tokens))",
        "shares = counts / len(tokens)",
    ),
    "the routers of the training need no sum of their gradients": (
        "            dist.all_reduce(parameter.grad)\n",
        "            pass\n",
    ),
    "the figure shows one training twice": (
        '"with the balancing loss": world.view["history_balanced"][0]',
        '"with the balancing loss": world.view["history_without"][0]',
    ),
    "a rank draws only the tokens that it drops itself": (
        'history["dropped"].append(all_reduce(surplus).item())',
        'history["dropped"].append(surplus.item())',
    ),
    "the capacity factor of the training is 1": (
        "counts - math.ceil(1.25 * len(tokens) / n)",
        "counts - len(tokens) // n",
    ),
    "the last matrix of an expert starts anywhere": ("        expert[2].weight.zero_()\n", ""),
    "the copies of all tokens lie behind the tokens": (
        "copies = tokens.repeat_interleave(k, dim=0)",
        "copies = tokens.repeat(k, 1)",
    ),
    "all ranks train with the same tokens": (
        "    torch.manual_seed(1000 * SEED + 100 * (step + 1) + rank)",
        "    torch.manual_seed(1000 * SEED + 100 * (step + 1))",
    ),
    "the training has no gates": (
        "outputs = gates.unsqueeze(1) * through_experts(tokens, chosen, expert)",
        "outputs = through_experts(tokens, chosen, expert)",
    ),
}

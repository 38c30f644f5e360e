"""The lesson gradients_through_collectives, broken on purpose."""

MUTANTS = {
    "rows that arrive bring their gradient": ("    averaged(all_gather)\n", "    averaged(lambda rows: rows)\n"),
    "autograd records a collective": (
        "    return rows_of_all\n\ndef averaged",
        "    return rows_of_all + 0 * rows.sum()\n\ndef averaged",
    ),
    "own rows put back get another share": (
        "    rows_of_all[own] = rows\n    return rows_of_all",
        "    return torch.cat(n * [rows])",
    ),
    "a rank's own gradient is enough": (
        "        dist.reduce_scatter_single(of_own_rows, gradient_of_all.contiguous())\n",
        "",
    ),
    "the backward pass takes the mean": ("        return of_own_rows", "        return of_own_rows / n"),
    "a chunk is no view": (
        "of_own_rows = torch.empty_like(gradient_of_all.chunk(n)[rank])",
        "of_own_rows = gradient_of_all.chunk(n)[rank]",
    ),
    "the adjoint of a broadcast is a broadcast": (
        "    dist.reduce(result, dst=0)\n    return result if rank == 0 else torch.zeros_like(x)",
        "    dist.broadcast(result, src=0)\n    return result if True else torch.zeros_like(x)",
    ),
    "after a reduce every rank has a result": (
        "return result if rank == 0 else torch.zeros_like(x)",
        "return result if True else torch.zeros_like(x)",
    ),
    "the adjoint sums over one rank": (
        "return all_reduce((left * right).sum())",
        "return (left * right).sum()",
    ),
    "the weights change on one rank only": (
        "change.view(-1)[place] = step",
        "change.view(-1)[place] = step * (rank == 0)",
    ),
    "finite differences cannot tell the two apart": (
        "(averaged(own_rows_put_back) - slopes)",
        "(averaged(AllGather.apply) - slopes)",
    ),
    "the deprecated function gets a share": ("torch.cat(deprecated.all_gather(rows))", "own_rows_put_back(rows)"),
    "the functional collective gets a share": (
        "gather_single(rows, gather_dim=0, group=world_group)",
        "own_rows_put_back(rows)",
    ),
    "an all_reduce in place has a backward pass": (
        "    dist.all_reduce(y)  # a warning, and no error",
        '    y = functional.all_reduce(y, "sum", world_group)',
    ),
    "the factor of a shard is 1": ("loss = y**2  # the same on all ranks", "loss = y**2 / n"),
    "a local loss changes nothing": (
        "mean_gradient = averaged(own_rows_put_back, queries=own)",
        "mean_gradient = averaged(own_rows_put_back)",
    ),
    "the local losses are no part of the loss": (
        "with_all_gather = averaged(AllGather.apply, queries=own)",
        "with_all_gather = n * averaged(AllGather.apply, queries=own)",
    ),
    "types refuse neither program": (
        'y = spmd.all_reduce(w * x, "tp", dst=dst)',
        'y = spmd.all_reduce(w * x, "tp", dst=spmd.I)',
    ),
    "types refuse both programs": (
        "        loss = y**2\n        loss.backward()",
        "        loss = w * x\n        loss.backward()",
    ),
    "a product without an f is accepted": ("refused(lambda w, h: w * h)", "refused(lambda w, h: w * w)"),
    "the types of an autograd.Function need no declaration": (
        "refused(lambda w, h: AllGather.apply(w))",
        'refused(lambda w, h: spmd.all_gather(w, "tp", src=spmd.V, dst=spmd.R))',
    ),
    "a row is compared with itself, too": (
        "    similarities = similarities.masked_fill(torch.eye(len(rows), dtype=torch.bool), -torch.inf)\n",
        "",
    ),
    "the partner is the next row": (
        "partners = torch.arange(len(rows)) ^ 1",
        "partners = (torch.arange(len(rows)) + 1) % len(rows)",
    ),
    "every rank has the queries of rank 0": (
        "mean_gradient = averaged(own_rows_put_back, queries=own)",
        "mean_gradient = averaged(own_rows_put_back, queries=slice(0, 4))",
    ),
    "the losses of all ranks are added": (
        "    return all_reduce(loss) / n\n",
        "    return all_reduce(loss)\n",
    ),
    "a weight changes by a tenth": (
        "def finite_differences(function, w, step=1e-5):",
        "def finite_differences(function, w, step=0.1):",
    ),
    "every rank has the samples of rank 0": (
        "own = slice(4 * rank, 4 * rank + 4)",
        "own = slice(0, 4)",
    ),
    "the adjoint is tried with the same tensors on all ranks": (
        "torch.Generator().manual_seed(rank)",
        "torch.Generator().manual_seed(0)",
    ),
    "a slope is twice as steep": (
        "(function(w + change) - function(w - change)) / (2 * step)",
        "(function(w + change) - function(w - change)) / step",
    ),
    "the gradients are added instead of averaged": ("    return mean / n\n", "    return mean\n"),
}

"""The lesson sharded_embeddings, broken on purpose."""

MUTANTS = {
    "a row has two owners": ("    return ids % ranks, ids // ranks", "    return ids % ranks // 2, ids // ranks"),
    "blocks overlap": ("    block = -(-rows // ranks)  # rounded up", "    block = -(-rows // ranks) - 1"),
    "vectors stay in the order of the owners": (
        "    return exchange(asked_rows, received, sent)[order.argsort()]",
        "    return exchange(asked_rows, received, sent)",
    ),
    "gradients go to other rows": (
        "    return exchange(own_rows[order], sent, received)",
        "    return exchange(own_rows, sent, received)",
    ),
    "a row gets the mean of its gradients": (
        "        asked = to_owners(gradients, context.plan)",
        "        asked = to_owners(gradients, context.plan) / n",
    ),
    "an assignment adds up": (
        "    shard[places] -= gradients",
        "    shard.index_put_((places,), -gradients, accumulate=True)",
    ),
    "the loss is the mean of a rank": (
        '    loss = F.cross_entropy(outputs, label, reduction="sum") / passages',
        '    loss = F.cross_entropy(outputs, label, reduction="sum") / len(label)',
    ),
    "the dense layers do not exchange gradients": (
        "        dist.all_reduce(parameter.grad)\n    optimizer.step()",
        "        all_reduce(parameter.grad)\n    optimizer.step()",
    ),
    "an idle rank has passages, after all": (
        "data = batch([]) if idle else batch_of(0)",
        "data = batch_of(0)",
    ),
    "ranks ask for every word": (
        '(("every word", ids), ("each id once", ids.unique()))',
        '(("every word", ids), ("each id once", ids))',
    ),
    "modulo overloads rank 0, too": (
        "        asked, _ = request(wanted, ownership(wanted)[0])\n        loads",
        "        asked, _ = request(wanted, by_blocks(wanted)[0])\n        loads",
    ),
    "gradients do not travel": (
        "    to_owners(torch.ones_like(vectors), plan)\ndist.barrier()",
        "    pass\ndist.barrier()",
    ),
    "the server does not add up": (
        "    return 8 * len(ids) + 8 * len(offsets) + 2 * 8 * columns * len(offsets)",
        "    return 8 * len(ids) + 8 * len(offsets) + 2 * 8 * columns * len(ids)",
    ),
    "only the requests of the busiest rank count": (
        "(requests.sum(dim=0) + requests.sum(dim=1)).max().item()",
        "requests.sum(dim=1).max().item()",
    ),
    "vectors can travel early": (
        "        next_fetched = fetch(model[0], next_ids, by_modulo)\n"
        "        train_step(model, batch_of(step), fetched)",
        "        train_step(model, batch_of(step), fetched)\n"
        "        next_fetched = fetch(model[0], next_ids, by_modulo)",
    ),
    "no row is stale": (
        "train_step(model, batch_of(0), fetch(model[0], trained, by_modulo))",
        "fetch(model[0], trained, by_modulo)",
    ),
    "the stale rows are two updates old": (
        "behind, _, _ = in_one_process(delay=1)",
        "behind, _, _ = in_one_process(delay=2)",
    ),
    "a delay costs nothing because there is none": (
        "_, _, stale_losses = in_one_process(delay=1)",
        "_, _, stale_losses = in_one_process(delay=0)",
    ),
    "the repair forgets the rows of other ranks": (
        "    flags = answer(torch.isin(places, updated), plan)",
        "    flags = torch.isin(ids, batch_of(0)[0])",
    ),
    "the repair takes no row for updated": (
        "        updated = fetched[1]\n        next_ids",
        "        updated = None if repair is None else torch.arange(0)\n        next_ids",
    ),
    "the requests for another row are counted": ("(asked == 0).sum().item()", "(asked == 1).sum().item()"),
    "the server gets no offsets": (
        "    return 8 * len(ids) + 8 * len(offsets) + 2 * 8 * columns * len(offsets)",
        "    return 8 * len(ids) + 2 * 8 * columns * len(offsets)",
    ),
    "every row is fetched again": (
        "    flags = answer(torch.isin(places, updated), plan)",
        "    flags = answer(torch.isin(places, places), plan)",
    ),
    "validation passages are in the training batches": (
        "torch.randperm(800, generator=generator)",
        "torch.randperm(len(bags), generator=generator)",
    ),
    "few rows are fetched again": (
        "refetched.append(len(ids[flags]) / len(ids))",
        "refetched.append(len(ids[flags]) / rows)",
    ),
    "every number of ranks has the passages of this world's ranks": (
        "batch(passages_of(0, ranks)[asking::ranks])",
        "batch(passages_of(0, ranks)[asking::n])",
    ),
}

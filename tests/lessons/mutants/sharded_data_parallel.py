"""The lesson sharded_data_parallel, broken on purpose."""

MUTANTS = {
    "data parallel needs no division": (
        "            unit.full.grad = flat.div_(n)\n",
        "            unit.full.grad = flat\n",
    ),
    "ZeRO-1 needs no all-gather": (
        "/ n\n        optimizer.step()\n        for unit in units:\n            all_gather(unit.shard, unit.full)\n",
        "/ n\n        optimizer.step()\n",
    ),
    "after the step of ZeRO-1 all ranks have all new parameters": (
        "optimizer.step()\nassert changed(unit, before) == [rank]",
        "optimizer.step()\nall_gather(unit.shard, unit.full)\nassert changed(unit, before) == [rank]",
    ),
    "ZeRO-2 adds up its gradients at the end of backward": (
        "        when_complete(unit, scatter_gradient)\n    optimizer = adam([unit.shard for unit in units])\n"
        "    def update():\n        optimizer.step()\n        for unit in units:\n"
        '            all_gather(unit.shard, unit.full)\n    return optimizer, update\n\nvariants["ZeRO-2"] = zero2',
        "        pass\n    optimizer = adam([unit.shard for unit in units])\n"
        "    def update():\n        for unit in units:\n            scatter_gradient(unit)\n"
        "        optimizer.step()\n        for unit in units:\n"
        '            all_gather(unit.shard, unit.full)\n    return optimizer, update\n\nvariants["ZeRO-2"] = zero2',
    ),
    "a view keeps only what it shows": (
        "divided, in_place = chunk / n, chunk.div_(n)",
        "divided, in_place = chunk / n, chunk / n",
    ),
    "the gradient of a shard may be a view": (
        "    unit.shard.grad = reduce_scatter(unit.take_gradient()) / n\n\ndef zero2",
        "    unit.shard.grad = reduce_scatter(unit.take_gradient()).div_(n)\n\ndef zero2",
    ),
    "ZeRO-3 does without freeing after forward": (
        "        unit.layer.register_forward_hook(lambda *_, unit=unit: free(unit))",
        "        unit.layer.register_forward_hook(lambda *_, unit=unit: None)",
    ),
    "ZeRO-3 does without freeing after backward": (
        "    scatter_gradient(unit)\n    free(unit)",
        "    scatter_gradient(unit)",
    ),
    "the shards of ZeRO-3 may be views into the whole": (
        "        unit.shard = unit.shard.clone()\n        free(unit)\n"
        "        unit.layer.register_forward_pre_hook(lambda *_, unit=unit: gather(unit))",
        "        unit.layer.register_forward_pre_hook(lambda *_, unit=unit: gather(unit))",
    ),
    "ZeRO-3 gathers a layer three times": (
        "        unit.layer.register_full_backward_pre_hook(lambda *_, unit=unit: gather(unit))\n"
        "        when_complete(unit, scatter_and_free)",
        "        unit.layer.register_full_backward_pre_hook(lambda *_, unit=unit: "
        "[gather(unit), gather(unit)].clear())\n        when_complete(unit, scatter_and_free)",
    ),
    "the ledger may forget the optimizer": (
        "    kinds = parameters, gradients, state_of(optimizer), [flat_copy]",
        "    kinds = parameters, gradients, [], [flat_copy]",
    ),
    "gloo's reduce-scatter sends what a ring sends": (
        "carried_by(dist.reduce_scatter_single, shard.clone(), whole)",
        "carried_by(reduce_scatter, whole.clone())",
    ),
    "fetching ahead costs no memory": (
        "following=following: launch(following)",
        "following=following: None",
    ),
    "prefetching is ZeRO-3 alone": (
        'variants["prefetching"] = prefetching',
        'variants["prefetching"] = variants["ZeRO-3"]',
    ),
    "all ranks train on the same samples": (
        "model(inputs[rank::n]), targets[rank::n]",
        "model(inputs[::n]), targets[::n]",
    ),
    "the peak has no flat copy": (
        "            note(at, flat)\n",
        "            note(at)\n",
    ),
    "with many ranks ZeRO-3 peaks at two layers": (
        '"ZeRO-3": 3 / n + (L - 1) / (L * n) + 3 / L',
        '"ZeRO-3": 3 / n + (L - 1) / (L * n) + 2 / L',
    ),
    "the library sends both ends of each message": (
        "library = carried.bytes / 2, ",
        "library = carried.bytes, ",
    ),
    "ZeRO-2 sends all its bytes in backward": (
        "return sum(sizes), sum(sizes[in_backward:])",
        "return sum(sizes), 0",
    ),
    "layers that take no time hide an all-gather": (
        "            time.sleep(0.08)\n",
        "            time.sleep(0.0)\n",
    ),
    "the links are fast": (
        "network.limit(world, 8 * B / L * (n - 1) / n / travel)",
        "network.lift(world)",
    ),
    "the table shows what a rank holds at its peak": (
        'holds = times_B | {"Zero',
        'holds = measured | {"Zero',
    ),
    "the table counts the bytes of the update only": (
        "sends = {name: sent[name][0] / B for",
        "sends = {name: sent[name][1] / B for",
    ),
    "the figure shows the slowest steps": (
        "fastest = {name: min(ranks[0], key=seconds)",
        "fastest = {name: max(ranks[0], key=seconds)",
    ),
}

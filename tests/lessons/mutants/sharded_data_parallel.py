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
        "after_step = changed()\nall_gather(unit.shard, unit.full)\n",
        "all_gather(unit.shard, unit.full)\nafter_step = changed()\n",
    ),
    "ZeRO-2 adds up its gradients at the end of backward": (
        "        when_complete(unit, scatter_gradient)\n    optimizer = adam([unit.shard for unit in units])\n"
        "    def update():\n        optimizer.step()\n        for unit in units:\n"
        '            all_gather(unit.shard, unit.full)\n    return optimizer, update\n\nas_ddp("zero2")',
        "        pass\n    optimizer = adam([unit.shard for unit in units])\n"
        "    def update():\n        for unit in units:\n            scatter_gradient(unit)\n"
        "        optimizer.step()\n        for unit in units:\n"
        '            all_gather(unit.shard, unit.full)\n    return optimizer, update\n\nas_ddp("zero2")',
    ),
    "a view keeps only what it shows": (
        "in_place, divided = chunk.div_(n), chunk / n",
        "in_place, divided = chunk / n, chunk / n",
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
        "    kinds = parameters, gradients, state_of(optimizer)",
        "    kinds = parameters, gradients, []",
    ),
    "gloo's reduce-scatter sends what a ring sends": (
        "    reduce_scatter_single(shard, flat)",
        "    shard.copy_(reduce_scatter(flat))",
    ),
    "fetching ahead costs no memory": (
        "following=following: launch(following)",
        "following=following: None",
    ),
    "the plain version fetches ahead, too": (
        "    return zero3_of_the_lesson(units, gather=fetch)\n\ndef prefetching",
        "    return prefetching(units)\n\ndef prefetching",
    ),
}

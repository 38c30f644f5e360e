"""The lesson three_dimensions, broken on purpose."""

MUTANTS = {
    "the first axis counts fastest": (
        "    for axis, size in reversed(layout):\n        coordinates[axis] = rank % size",
        "    for axis, size in layout:\n        coordinates[axis] = rank % size",
    ),
    "a group has all ranks that share the coordinate along its axis": (
        "if all(theirs[name] == own[name] for name in own if name != axis):",
        "if all(theirs[name] == own[name] for name in own if name == axis):",
    ),
    "f adds up nothing backward": (
        "        return total(gradient, context.group), None",
        "        return gradient, None",
    ),
    "g adds up nothing forward": (
        "        return total(tensor, group)\n",
        "        return total(tensor, None)\n",
    ),
    "heads are split along their features": ('"qkv_3DHE": 2,', '"qkv_3DHE": 1,'),
    "all stages have the first blocks": (
        "model[stage * L // stages : (stage + 1) * L // stages]",
        "model[: L // stages]",
    ),
    "a position sees later positions": ("v_BHSE, is_causal=True)", "v_BHSE, is_causal=False)"),
    "the loss of a micro-batch is the loss of the batch": (
        "(mse_loss(out_BSD, y_BSD) / len(kept)).backward()",
        "mse_loss(out_BSD, y_BSD).backward()",
    ),
    "gradients come back in the reverse order": (
        "    for x_BSD, out_BSD, y_BSD in kept:",
        "    for x_BSD, out_BSD, y_BSD in reversed(kept) if stage > 0 else kept:",
    ),
    "the sum over the replicas is their mean": (
        "group_of.get(tuple(replicas))) / len(replicas)",
        "group_of.get(tuple(replicas)))",
    ),
    "all replicas see the first samples": (
        "xs = batch_BSD.chunk(len(replicas))[replica]",
        "xs = batch_BSD.chunk(len(replicas))[0]",
    ),
    "every tensor rank adds to the scales' gradients": (
        "    average([weight for block in blocks for weight in block.values()], replicas)",
        "    for block in blocks:\n"
        '        block["scale1_D"].grad = total(block["scale1_D"].grad, group("tensor", layout))\n'
        "    average([weight for block in blocks for weight in block.values()], replicas)",
    ),
    "a block has two all-reduces": (
        '"tensor": 4 * L // p * A // d if t > 1 else 0,',
        '"tensor": 2 * L // p * A // d if t > 1 else 0,',
    ),
    "every stage has two neighbours": (
        "neighbours = (stage > 0) + (stage < p - 1)",
        "neighbours = 2 if p > 1 else 0",
    ),
    "scales are split": (
        "weights = L // p * (12 * D * D // t + 2 * D) * 8",
        "weights = L // p * (12 * D * D + 2 * D) // t * 8",
    ),
    "the outermost axis has its ranks on one host": (
        "layout = (outermost, *[pair for pair in way if pair != outermost])",
        "layout = (*[pair for pair in way if pair != outermost], outermost)",
    ),
    "a ring has no last hop": (
        "ring = zip(line, line[1:] + line[:1])\n                hops = sum(home(a) < home(b) for a, b in ring)",
        "ring = zip(line, line[1:])\n                hops = sum(home(a) > home(b) for a, b in ring)",
    ),
    "tensor sends nothing between the hosts": (
        "    return sum(on_cables(layout).values())",
        '    return sum(on_cables(layout).values()) - on_cables(layout)["tensor"]',
    ),
    "activations and their gradients cross at once": (
        'crossing[axis] * (2 if axis == "pipeline" else 1) / R',
        "crossing[axis] / R",
    ),
    "a block is computed once on paper": (
        "out_BSD = checkpoint(run_block, out_BSD, weights, tensor, use_reentrant=False)",
        "out_BSD = run_block(out_BSD, weights, tensor)",
    ),
    "a stage on paper has all blocks": (
        'for _ in range(60 // sizes["pipeline"]):',
        "for _ in range(60):",
    ),
    "rank 0 of 1,024 sums over its replicas": (
        'tensor = mesh.get_group("tensor")',
        'tensor = mesh.get_group("data")',
    ),
    "the second forward pass stops early": (
        "set_checkpoint_early_stop(not whole_forward)",
        "set_checkpoint_early_stop(True)",
    ),
    "a parameter needs 8 bytes": (
        "    states = 16 * parameters / (pipeline * tensor)",
        "    states = 8 * parameters / (pipeline * tensor)",
    ),
    "a network card is as fast as NVLink": (
        "NVLINK, CARD = 300e9, 25e9",
        "NVLINK, CARD = 300e9, 300e9",
    ),
    "a pipeline pauses once for each stage": (
        '"bubble": (pipeline - 1) / micro_batches *',
        '"bubble": pipeline / micro_batches *',
    ),
    "a point is the step time of the best layout": (
        'measured = results[layout]["seconds"] if',
        'measured = results[best]["seconds"] if',
    ),
    "the second panel shows the second worst layout": (
        'for what, layout in (("best", best), ("worst", worst)):',
        'for what, layout in (("best", best), ("worst", in_order[-2])):',
    ),
    "a GPU needs memory for model states only": (
        "rows.append((label, on_paper[sizes], sum(gigabytes(*sizes)), sizes in fitting))",
        "rows.append((label, on_paper[sizes], gigabytes(*sizes)[0], sizes in fitting))",
    ),
    "all bars show the best layout": (
        "rows.append((name(layout), on_cables(layout), measured))",
        "rows.append((name(layout), on_cables(best), measured))",
    ),
    "all bars on paper show the fastest layout": (
        "rows.append((label, on_paper[sizes], sum(",
        "rows.append((label, on_paper[fastest], sum(",
    ),
    "the tensor ranks on paper average gradients": (
        "(pipeline * tensor) / CARD,",
        "pipeline / CARD,",
    ),
}

"""The lesson a_language_model_on_a_mesh, broken on purpose."""

MUTANTS = {
    "the long training sees one batch again and again": (
        "long_losses = [update(model, optimizer, *batch(step))",
        "long_losses = [update(model, optimizer, *batch(0))",
    ),
    "the bigram model ignores the last character": (
        "probabilities = counts / counts.sum(1, keepdim=True)",
        "probabilities = (counts.sum(0) / counts.sum()).expand_as(counts)",
    ),
    "both texts come from the untrained model": ("after = continued(model, 80)", "after = before"),
    "a rank trains on sequences of another": (
        "own_sequences = slice(rank, None, n)",
        "own_sequences = slice(0, None, n)",
    ),
    "the order of the sequences matters": (
        "reversed_order = torch.arange(SEQUENCES).flip(0)",
        "reversed_order = torch.arange(SEQUENCES - 1)",
    ),
    "the norms know only their own tokens": ('        "blocks.*.norm[12]": SequenceParallel(),\n', ""),
    "attention gathers three times": (
        '        "blocks.*.attention": gathered,\n        "blocks.*.attention.[qkv]": ColwiseParallel(),\n',
        '        "blocks.*.attention.[qkv]": ColwiseParallel(input_layouts=Shard(1)),\n',
    ),
    "fully_shard shards nothing of the mesh": (
        '    return shard(model, grid["dp"])',
        "    return model",
    ),
    "a row of the mesh trains on all sequences": (
        'half_of_the_sequences = slice(grid.get_local_rank("dp"), None, 2)',
        "half_of_the_sequences = slice(0, None, 2)",
    ),
    "the hybrid shards over all ranks": (
        "    return shard(new_model(dtype), hosts)",
        "    return shard(new_model(dtype), line)",
    ),
    "the shards of the hybrid are on both hosts": (
        'hosts = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("replicate", "shard"))',
        "ranks = torch.arange(n).view(n // 2, 2).T.contiguous()\n"
        'hosts = dist.device_mesh.DeviceMesh("cpu", ranks, mesh_dim_names=("replicate", "shard"))',
    ),
    "fully_shard over all ranks crosses the cable as seldom as the hybrid": (
        'models = {"fully_shard": by_shards(torch.float64)',
        'models = {"fully_shard": by_hybrid(torch.float64)',
    ),
    "a step sends nothing while it is measured": (
        "    with traffic.own_connections() as carried:\n        train(model, [STEPS], share)\n",
        "    train(model, [STEPS], share)\n    with traffic.own_connections() as carried:\n        pass\n",
    ),
    "gloo's reduce_scatter counts once": (
        "(4 * sizes[True] + 3 * sizes[False])",
        "(3 * sizes[True] + 2 * sizes[False])",
    ),
    "Adam keeps one average": ('for name in ("exp_avg", "exp_avg_sq")]', 'for name in ("exp_avg",)]'),
    "every micro-batch reduces": (
        "        reduce_gradients(model, index == len(micro_batches) - 1)",
        "        reduce_gradients(model, True)",
    ),
    "each rank clips by its own norm": (
        "    nn.utils.clip_grad_norm_(model.parameters(), most)",
        "    own = [local(parameter.grad) for parameter in model.parameters()]\n"
        "    norm = nn.utils.get_total_norm(own)\n"
        "    [gradient.mul_((most / norm).clamp(max=1)) for gradient in own]",
    ),
    "the steps do not clip": ("0.5) for number in range(3)]", "50) for number in range(3)]"),
    "the logits are in 16 bits": ("mp_policy=replace(policy, output_dtype=torch.float32))", "mp_policy=policy)"),
    "the stages of a pair are on one host": (
        'stages = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("pipeline", "shard"))',
        "ranks = torch.arange(n).view(n // 2, 2).T.contiguous()\n"
        'stages = dist.device_mesh.DeviceMesh("cpu", ranks, mesh_dim_names=("pipeline", "shard"))',
    ),
    "the losses of the micro-batches are added up": (
        "return sum(loss.item() for loss in losses) / 2",
        "return sum(loss.item() for loss in losses)",
    ),
    "all pairs of stages train on the same sequences": (
        'of_pair = slice(stages.get_local_rank("shard"), None, n // 2)',
        "of_pair = slice(0, None, n // 2)",
    ),
    "tensor parallel is trained in single precision twice": (
        "split_in_bf16(new_model(dtype), one_row)",
        "by_tensor(dtype)",
    ),
    "nothing is computed again": ("    model.recompute = recompute\n", ""),
    "a block that is computed again keeps what any block keeps": (
        "        if recompute:\n            checkpoint(block, x, use_reentrant=False)\n",
        "        if recompute:\n            block(x)\n",
    ),
    "both is trained in single precision twice": (
        '    return shard_in_bf16(model, mesh["dp"])',
        '    return shard(model, mesh["dp"])',
    ),
    "gradients are reduced in 16 bits": ("reduce_dtype=torch.float32)", "reduce_dtype=torch.bfloat16)"),
    "the optimizer starts again": (
        "resumed_losses = train(model, [3, 4], own_sequences, optimizer)",
        "resumed_losses = train(model, [3, 4], own_sequences, adam(model))",
    ),
    "the checkpoint is written after two more steps": (
        'state = {"model": of_model, "optimizer": of_optimizer}\n'
        "saving = files.async_save(state, checkpoint_id=folder, process_group=savers)\n"
        "next_losses = train(model, [3, 4], half_of_the_sequences, optimizer).tolist()\n",
        "next_losses = train(model, [3, 4], half_of_the_sequences, optimizer).tolist()\n"
        "of_model, of_optimizer = get_state_dict(model, optimizer)\n"
        'state = {"model": of_model, "optimizer": of_optimizer}\n'
        "saving = files.async_save(state, checkpoint_id=folder, process_group=savers)\n",
    ),
    "the model on meta has memory": ('with torch.device("meta"):', 'with torch.device("cpu"):'),
    "the file splits no matrix": ('"--pipeline", "2", "--tensor", half', '"--pipeline", "2", "--shard", half'),
}

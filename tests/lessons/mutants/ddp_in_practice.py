"""The lesson ddp_in_practice, broken on purpose."""

MUTANTS = {
    "autocast also changes the dtype of the gradients": (
        "model, dtypes = DDP(nn.Linear(64, 10)), {}",
        "model, dtypes = DDP(nn.Linear(64, 10).bfloat16()), {}",
    ),
    "one rank alone skips a step": (
        "model, scaler = DDP(nn.Linear(64, 10)), GradScaler",
        "model, scaler = nn.Sequential(nn.Linear(64, 10)), GradScaler",
    ),
    "the momentum of the optimizer is not loaded": (
        '    run.optimizer.load_state_dict(state["optimizer"])\n',
        "",
    ),
    "the weights are not loaded": (
        '    run.model.module.load_state_dict(state["model"])\n    run.optimizer',
        "    run.optimizer",
    ),
    "the position is not kept": (
        '    run.epoch, run.batch = state["epoch"], state["batch"]\n',
        "",
    ),
    "the generator of rank 0 serves all ranks": (
        'state["generators"][rank]',
        'state["generators"][0]',
    ),
    "the loader may draw from the global generator": (
        "sampler=remaining(run), generator=torch.Generator()",
        "sampler=remaining(run)",
    ),
    "the compiler does not know of buckets": (
        "with torch._dynamo.config.patch(optimize_ddp=split):",
        "with torch._dynamo.config.patch(optimize_ddp=False):",
    ),
    "buckets are no memory of their own": (
        "gradient_as_bucket_view=views",
        "gradient_as_bucket_view=True",
    ),
    "two ranks on one GPU take NCCL": (
        "    if ranks > gpus:\n",
        "    if gpus == 1:\n",
    ),
    "DDP takes device_ids on the CPU": (
        "    ids = [torch.device(device).index] if on_gpu else None",
        "    ids = [0]",
    ),
    "an overflow on every rank is an overflow on rank 1 alone": (
        "if rank == 1:\n    images = images * 1e6",
        "if rank >= 0:\n    images = images * 1e6",
    ),
    "a run that keeps the buffers has forgotten them": (
        "buffer.copy_(fresh[name])",
        "buffer.copy_(buffer)",
    ),
    "the figure exchanges one graph and four graphs": (
        '{"four graphs": split, "one graph": unsplit[0][1]}',
        '{"four graphs": unsplit[0][1], "one graph": split}',
    ),
    "the gradients may be clipped before they are unscaled": (
        "    scaler.unscale_(optimizer)\n    clip_grad_norm_(model.parameters(), 1.0)",
        "    clip_grad_norm_(model.parameters(), 1.0)\n    scaler.unscale_(optimizer)",
    ),
}

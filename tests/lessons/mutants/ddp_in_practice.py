"""The lesson ddp_in_practice, broken on purpose."""

MUTANTS = {
    "every forward sends the buffers": (
        "for trains in (True, False, False, True, True):",
        "for trains in (True, True, True, True, True):",
    ),
    "the average of the variances is enough": (
        "        square = module.running_var + mean**2",
        "        square = module.running_var",
    ),
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
    "a rank that finds an unused parameter sends its gradients": (
        "_, model = two_steps(Branch(), find_unused_parameters=True)",
        "_, model = two_steps(nn.ModuleDict())",
    ),
    "every rank uses the layer": (
        "return hidden if rank == 0 else self.second(hidden)",
        "return self.second(hidden)",
    ),
    "a layer may be frozen after wrapping": (
        "        self[0].requires_grad_(False)  #",
        "        self[0].requires_grad_(True)  #",
    ),
    "a reentrant checkpoint is harmless": (
        '"reentrant": two_steps(Twice(use_reentrant=True)),',
        '"reentrant": two_steps(Twice(use_reentrant=False)),',
    ),
    "samplers with other seeds miss nothing": (
        "enumerate([SEED, SEED + rank])",
        "enumerate([SEED, SEED])",
    ),
    "the layers have one order on all ranks": (
        'if rank == 1 else ["first", "second"]',
        'if rank == -1 else ["first", "second"]',
    ),
    "a drift heals": (
        "difference, weights_agreed = drift(weight_decay=0)",
        "difference, weights_agreed = drift(weight_decay=0.1)",
    ),
    "a rank compares its checksum with itself": (
        "    dist.all_reduce(ends, op=dist.ReduceOp.MAX)\n",
        "",
    ),
    "buckets are no memory of their own": (
        "gradient_as_bucket_view=views",
        "gradient_as_bucket_view=True",
    ),
}

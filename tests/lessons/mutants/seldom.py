"""The lesson seldom, broken on purpose."""

MUTANTS = {
    "the ranks never average": (
        "        if number % period == 0:\n            start = synchronise",
        "        if number > 10**9:\n            start = synchronise",
    ),
    "a round has one step more": (
        "for number, batch in enumerate(batches, start=1):\n        one_step",
        "for number, batch in enumerate(batches, start=0):\n        one_step",
    ),
    "DDP in 16 bits sends 32": (
        '"DDP, fp16": default_hooks.fp16_compress_hook',
        '"DDP, fp16": default_hooks.allreduce_hook',
    ),
    "the outer step has plain momentum": (
        "eta * (pseudo_gradient + mu * velocity), velocity",
        "eta * velocity, velocity",
    ),
    "the pseudo-gradient has the other sign": (
        "    pseudo_gradient = start - mean(own)\n    velocity",
        "    pseudo_gradient = mean(own) - start\n    velocity",
    ),
    "DiLoCo forgets its velocity": (
        "        start, self.velocity = outer_step(start, own, self.velocity)",
        "        start, _ = outer_step(start, own, self.velocity)",
    ),
    "DiLoCo is the plain average": (
        "        start, self.velocity = outer_step(start, own, self.velocity)",
        "        start, self.velocity = outer_step(start, own, self.velocity, 1.0, 0.0)",
    ),
    "the second rate is the first": (
        'world.call("train", name, 0.01)',
        'world.call("train", name, 0.001)',
    ),
    "the first rate is the second": (
        'world.call("train", name, 0.001)',
        'world.call("train", name, 0.01)',
    ),
    "a period of one is longer than one": (
        'methods[f"average, H = {period}"] = period, average',
        'methods[f"average, H = {period}"] = max(period, 10), average',
    ),
    "the library never averages weights": (
        "return model, PostLocalSGDOptimizer(adamw, averager)",
        "return model, adamw",
    ),
    "all ranks start from the same weights twice": (
        "averaged_once(SEED + 100 * (rank + 1))",
        "averaged_once(SEED + 100)",
    ),
    "no rank shares its start": (
        "averaged_once(SEED), averaged_once(",
        "averaged_once(SEED + 7 * rank), averaged_once(",
    ),
    "the hook goes on averaging gradients": (
        "start_localSGD_iter=warm_up,",
        "start_localSGD_iter=warm_up + 1,",
    ),
    "the averager has another period": (
        "PeriodicModelAverager(period=period, warmup_steps=warm_up)",
        "PeriodicModelAverager(period=period - 1, warmup_steps=warm_up)",
    ),
    "the bias has a gradient, too": (
        "norm.weight.grad = torch.zeros(1)\n",
        "norm.weight.grad = norm.bias.grad = torch.zeros(1)\n",
    ),
    "the mean is a sum": ("    return total / n\n", "    return total\n"),
    "between the hosts, a round has five steps": (
        "arguments = model, optimizer, batches(100), period, synchronise",
        "arguments = model, optimizer, batches(100), min(period, 5), synchronise",
    ),
    "the cables are not paced": (
        "    network.limit(world, RATE)\n    for name",
        "    for name",
    ),
    "every rank has the same text": (
        "own_text = texts.training[rank * words_of_rank : (rank + 1) * words_of_rank]",
        "own_text = texts.training[:words_of_rank]",
    ),
    "the losses are those of the training text": (
        "def validation_loss(model):\n    pairs, targets = examples(texts.validation)",
        "def validation_loss(model):\n    pairs, targets = examples(own_text)",
    ),
    "the clock runs on during the validation": (
        "                dist.barrier()\n                begin = time.perf_counter()\n",
        "                dist.barrier()\n",
    ),
    "only the first training run is paced": (
        'curves[name] = world.call("train", name, 0.001)[0]\nnetwork.lift(world)',
        'curves[name] = world.call("train", name, 0.001)[0]\n    network.lift(world)',
    ),
    "the velocity outlives a training run": (
        'methods[f"DiLoCo, H = {period}"] = period, DiLoCo',
        'methods[f"DiLoCo, H = {period}"] = period, DiLoCo()',
    ),
    "the seconds by bytes take a byte for a bit": (
        "(WORLD_SIZE - 1) / WORLD_SIZE * 8 * handed_bytes / RATE",
        "(WORLD_SIZE - 1) / WORLD_SIZE * handed_bytes / RATE",
    ),
    "the hook exchanges its warm-up and its period": (
        "with_library(learning_rate, warm_up=100, period=10)",
        "with_library(learning_rate, warm_up=10, period=100)",
    ),
    "the links are ten times as fast": ("RATE = 100e6\n", "RATE = 1e9\n"),
}

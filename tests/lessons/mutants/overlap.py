"""The lesson overlap, broken on purpose."""

MUTANTS = {
    "the hooks are called in the order in which they were set": (
        "    model(torch.ones(4, 8)).sum().backward()\n    return names",
        "    model(torch.ones(4, 8)).sum().backward()\n"
        "    return [name for name, _ in model.named_parameters() if name.endswith('weight')]",
    ),
    "the hook of a shared weight is called for each of its uses": (
        "hook_calls = len(calls_of_hooks(tied))",
        "hook_calls = len(calls_of_hooks(tied)) + len(calls_of_hooks(tied))",
    ),
    "a shared weight has the gradient of one use": (
        "tied = nn.Sequential(shared, nn.ReLU(), shared)",
        "tied = nn.Sequential(shared, nn.ReLU(), nn.Linear(8, 8))",
    ),
    "the averages stay in the bucket": (
        "            parameter.grad = part.view_as(parameter)",
        "            pass",
    ),
    "the bucket holds the sum": (
        "torch.div(parameter.grad, n, out=",
        "torch.div(parameter.grad, 1, out=",
    ),
    "the hook launches before the bucket is full": (
        "        if not self.waiting:",
        "        if len(self.waiting) == len(self.parameters) - 1:",
    ),
    "the buckets are launched after the backward pass": (
        "        if not self.waiting:\n            self.launch()\n\n    def finish(self):\n        super()",
        "\n    def finish(self):\n        self.launch()\n        super()",
    ),
    "DDP has one bucket": (
        "DDP(model, bucket_cap_mb=4)",
        "DDP(model, bucket_cap_mb=400)",
    ),
    "DDP averages nothing": (
        "DDP(model, bucket_cap_mb=4)",
        "model",
    ),
    "the links are as they are when they should be paced": (
        "links = network.limit(world, 2e9)",
        "links = network.lift(world)",
    ),
    "the one bucket travels in the backward pass": (
        'names = "not averaged", "one bucket", "early buckets", "DDP"',
        'names = "not averaged", "one bucket", "early buckets", "DDP"\n'
        "world.view.execute(\"variants['one bucket'] = early_buckets\")",
    ),
    "the early buckets travel after the backward pass": (
        'names = "not averaged", "one bucket", "early buckets", "DDP"',
        'names = "not averaged", "one bucket", "early buckets", "DDP"\n'
        "world.view.execute(\"variants['early buckets'] = one_bucket\")",
    ),
    "no layer is updated during the backward pass": (
        "lambda _, after=number + 1: update(after)",
        "lambda _, after=number + 1: None",
    ),
    "a layer is updated with the gradients of one rank": (
        "        buckets[number].finish()\n        optimizers[number].step()",
        "        optimizers[number].step()\n        buckets[number].finish()",
    ),
    "a bucket that is not full is launched in finish": (
        "    def finish(self):\n        super().finish()\n        self.waiting",
        "    def finish(self):\n        if self.waiting:\n            self.launch()\n"
        "        super().finish()\n        self.waiting",
    ),
    "the figures show the last rank": (
        "min(steps, key=exposed)[0]",
        "min(steps, key=exposed)[-1]",
    ),
    "the first two steps count": (
        "    return steps[2:]",
        "    return steps[:6]",
    ),
    "each rank sends its gradients once": (
        "travel = 2 * (WORLD_SIZE - 1)",
        "travel = (WORLD_SIZE - 1)",
    ),
    "the figure of the slow link shows the fast steps": (
        "drawn_slow = least_exposed(slow)",
        "drawn_slow = least_exposed(fast)",
    ),
}

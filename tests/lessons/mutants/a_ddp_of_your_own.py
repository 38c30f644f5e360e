"""The lesson a_ddp_of_your_own, broken on purpose."""

MUTANTS = {
    "nothing is broadcast at the start": (
        "            dist.broadcast(tensor.detach(), src=0)\n",
        "            pass\n",
    ),
    "a bucket mixes dtypes": (
        "        bucket = still_open.setdefault(parameter.dtype, [])\n        bucket.append(parameter)\n"
        "        if sum(member.nbytes for member in bucket) >= limit:\n"
        "            closed.append(still_open.pop(parameter.dtype))",
        "        bucket = still_open.setdefault(None, [])\n        bucket.append(parameter)\n"
        "        if sum(member.nbytes for member in bucket) >= limit:\n"
        "            closed.append(still_open.pop(None))",
    ),
    "a bucket goes on after its limit": (
        ">= limit:\n            closed",
        "> limit:\n            closed",
    ),
    "the buckets go from the first parameter to the last": (
        "for parameter in reversed(parameters):",
        "for parameter in parameters:",
    ),
    "the bucket holds the sum": (
        "torch.div(parameter.grad, n, out=part)",
        "part.copy_(parameter.grad)",
    ),
    "the order of arrival is the order of the buckets": (
        "order = [self.right, self.left] if rank % 2 else [self.left, self.right]",
        "order = [self.left, self.right]",
    ),
    "the hooks launch in the order of arrival": (
        "by_arrival, in_order = outcome(InOrderOfArrival), outcome(Hooks)",
        "by_arrival, in_order = outcome(InOrderOfArrival), outcome(InOrderOfArrival)",
    ),
    "finish does not wait": (
        "        self.work.wait()\n",
        "",
    ),
    "no_sync sends": (
        "        self.sends = False\n",
        "        self.sends = True\n",
    ),
    "the sum of the micro-batches is dropped": (
        "        if self.sends:\n            super().ready(parameter)",
        "        if self.sends:\n            super().ready(parameter)\n        else:\n"
        "            parameter.grad = None",
    ),
    "an optimizer leaves a weight alone whose gradient is zero": (
        'weight_changes = {"None": changes(None), "zeros": changes(torch.zeros(1))}',
        'weight_changes = {"None": changes(None), "zeros": changes(None)}',
    ),
    "what no rank used has a gradient of zeros": (
        "            if ranks == 0:\n                parameter.grad = None",
        "            pass",
    ),
    "the branch is in use in every step": (
        "use_extra=step % 2 == 1)",
        "use_extra=True)",
    ),
    "the buffers stay as they are": (
        "            dist.broadcast(buffer, src=0)\n",
        "            pass\n",
    ),
    "the ranks train on the same shard": (
        "mine = slice(first + shard, first + HALF, shards)",
        "mine = slice(first, first + HALF, shards)",
    ),
    "each layer has a bucket": (
        "ddp, own = DDP(wide(), bucket_cap_mb=1), OwnDDP(wide(), bucket_cap_mb=1)",
        "ddp, own = DDP(wide(), bucket_cap_mb=1), OwnDDP(wide(), bucket_cap_mb=0.5)",
    ),
    "DDP has one bucket": (
        "ddp, own = DDP(wide(), bucket_cap_mb=1)",
        "ddp, own = DDP(wide(), bucket_cap_mb=100)",
    ),
    "the buckets are launched in finish": (
        "            self.buckets[self.launched].launch()\n            self.launched += 1\n\n    def finish(self):\n"
        "        for bucket",
        "            self.launched += 1\n\n    def finish(self):\n"
        "        for bucket in self.buckets[: self.launched]:\n            bucket.launch()\n        for bucket",
    ),
    "every step sends twice": (
        "    model(rows).square().mean().backward()\n    getattr",
        "    model(rows).square().mean().backward()\n    dist.all_reduce(torch.zeros(1))\n    getattr",
    ),
    "a frozen parameter stays as it is": (
        "for tensor in [*module.parameters(), *module.buffers()]:",
        "for tensor in [*(p for p in module.parameters() if p.requires_grad), *module.buffers()]:",
    ),
    "a state_dict has all buffers": (
        "for tensor in [*module.parameters(), *module.buffers()]:",
        "for tensor in module.state_dict().values():",
    ),
    "only the last micro-batch tells what is in use": (
        "in_use = torch.tensor([int(parameter.grad is not None) for parameter in parameters])",
        "in_use = torch.tensor([int(p not in self.bucket_of[p].waiting) for p in parameters])",
    ),
    "without find_unused a parameter may be left out": (
        "if missing and not self.find_unused:\n            raise",
        "if False:\n            raise",
    ),
}

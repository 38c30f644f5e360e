"""The lesson data_parallel, broken on purpose."""

MUTANTS = {
    "the ranks train on the same shard": (
        "training[start + rank : start + BATCH : n]",
        "training[start : start + BATCH : n]",
    ),
    "the gradients are not added up": (
        "        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)\n",
        "",
    ),
    "the gradients are added up and not divided": (
        "op=dist.ReduceOp.SUM)\n        parameter.grad /= n",
        "op=dist.ReduceOp.SUM)",
    ),
    "the second epoch is dealt like the first": (
        "for sampler in samplers:\n    sampler.set_epoch(1)",
        "for sampler in samplers:\n    sampler.set_epoch(0)",
    ),
    "the sampler gives all ranks the same shard": (
        "sampler = DistributedSampler(training, shards, shard, seed=SEED)",
        "sampler = DistributedSampler(training, shards, 0, seed=SEED)",
    ),
    "the ranks begin with equal weights before the broadcast": (
        "model = new_model(SEED + rank)\nbefore = distance(model)\n",
        "model = new_model(SEED)\nbefore = distance(model)\n",
    ),
    "the averaged gradients bring the copies together": (
        "after = distance(model)",
        "after = distance(model) / 2",
    ),
    "rank 0 does not broadcast its first weights": (
        "    for tensor in model.state_dict().values():\n        dist.broadcast(tensor, src=0)\n",
        "",
    ),
    "the bucket holds the sum": (
        "torch.div(parameter.grad, n, out=self.parts[parameter])",
        "self.parts[parameter].copy_(parameter.grad)",
    ),
    "the averages stay in the bucket": (
        "            parameter.grad = part",
        "            pass",
    ),
    "the bucket is not waited for": (
        "        self.work.wait()\n",
        "",
    ),
    "the bucket is sent for every parameter": (
        "        bucket.take(parameter)\n    bucket.launch()\n",
        "        bucket.take(parameter)\n        dist.all_reduce(torch.zeros(1))\n    bucket.launch()\n",
    ),
    "DDP leaves each rank its own gradients": (
        'as_one_process("DDP", DDP(different), nothing)',
        'as_one_process("DDP", same_start(), nothing)',
    ),
    "clipping before the average is right": (
        '    if when == "after":',
        '    if when == "before":',
    ),
    "the gradients are below the limit anyway": (
        "LIMIT = 0.1\n",
        "LIMIT = 100.0\n",
    ),
    "the optimizer keeps less than Adam": (
        "optimizer = torch.optim.Adam(model.parameters())",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)",
    ),
    "the bucket is launched after each gradient": (
        "        bucket.take(parameter)\n    bucket.launch()\n    bucket.finish()\n",
        "        bucket.take(parameter)\n        bucket.launch()\n    bucket.finish()\n",
    ),
    "copies with different weights train without averages": (
        "train(model, synchronise, rank, n)\nafter = distance(model)",
        "train(model, nothing, rank, n)\nafter = distance(model)",
    ),
    "the third variant is measured without DDP": (
        'results["DDP"] = measure(DDP(small_layers()), nothing)',
        'results["DDP"] = measure(small_layers(), nothing)',
    ),
    "the accuracy is that on the training images": (
        "guesses = model(test.tensors[0]).argmax(dim=1)\nright = (guesses == test.tensors[1])",
        "guesses = model(training.tensors[0]).argmax(dim=1)\nright = (guesses == training.tensors[1])",
    ),
    "the mean curve is the curve of rank 0": ("mean_losses = losses.mean(dim=0)", "mean_losses = losses[0]"),
    "the copies under DDP begin with equal weights": (
        "different = new_model(SEED + rank)",
        "different = new_model(SEED)",
    ),
}

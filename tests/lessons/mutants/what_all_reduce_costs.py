"""The lesson what_all_reduce_costs, broken on purpose."""

MUTANTS = {
    "the clocks start without a barrier": (
        "        dist.barrier()\n        start = time.perf_counter()",
        "        start = time.perf_counter()",
    ),
    "the longest lap counts": (
        "return min(slowest)",
        "return max(slowest)",
    ),
    "the links are ten times as fast as the formula says": (
        "links = network.limit(world, 8 * R)",
        "links = network.limit(world, 80 * R)",
    ),
    "the messages of an aggregator do not share a NIC": (
        '"aggregator_on_rank_0": [0],',
        '"aggregator_on_rank_0": [],',
    ),
    "the aggregator is measured on links that are still paced": (
        "network.lift(world)\nfast = ",
        "fast = ",
    ),
    "the tree never comes down": (
        "for distance in reversed(distances):",
        "for distance in []:",
    ),
    "the tree has half of its messages": (
        "rounds = 2 * ceil(log2(n))",
        "rounds = ceil(log2(n))",
    ),
    "the sweep is not paced": (
        "    network.limit(world, 8 * R, shared=swept[name])\n    for size",
        "    network.lift(world)\n    for size",
    ),
    "beta is a bandwidth": (
        "messages * alpha + tensors * beta * size",
        "messages * alpha + tensors * size / beta",
    ),
    "bus bandwidth is bytes by time": (
        "least = 2 * (n - 1) / n  # tensors that the busiest rank must send",
        "least = 1",
    ),
    "the cluster's NICs are eight times as fast": (
        '"beta": 8 / 400e9',
        '"beta": 1 / 400e9',
    ),
    "the messages of the naive exchange do not share a NIC in the sweep": (
        "shared=swept[name])",
        "shared=[])",
    ),
    "the broadcast goes through the rounds in the order of the reduce": (
        "for distance in reversed(distances):",
        "for distance in distances:",
    ),
    "beta comes from half of the tensor": (
        "pass_on(tensor, inbox[: len(tensor)])",
        "pass_on(tensor[: len(tensor) // 2], inbox[: len(tensor) // 2])",
    ),
    "the links are paced in bytes, not in bits": (
        "links = network.limit(world, 8 * R)",
        "links = network.limit(world, R)",
    ),
    "the NICs carry 16 MiB, and the prediction is for 4 MiB": (
        "seconds(name, 2**22, repeats=10)\n        print(",
        "seconds(name, B, repeats=10)\n        print(",
    ),
    "the fit minimises errors in seconds": (
        ", w=1 / shift_times)",
        ")",
    ),
    "16 MiB are 16 million bytes": ("B = 2**24  # bytes", "B = 16 * 10**6  # bytes"),
    "64 KiB are 64 bytes": ("small, large = model(size=2**16, **cluster)", "small, large = model(size=64, **cluster)"),
    "the printed ratios are predicted / measured": (
        "ratios = times[name] / predicted[name]",
        "ratios = predicted[name] / times[name]",
    ),
}

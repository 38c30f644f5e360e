"""The lesson what_all_reduce_costs, broken on purpose."""

MUTANTS = {
    "the clocks start without a barrier": (
        "        dist.barrier()\n        start = time.perf_counter()",
        "        start = time.perf_counter()",
    ),
    "the links are ten times as fast as the formula says": (
        "links = network.limit(world, 8 * R)",
        "links = network.limit(world, 80 * R)",
    ),
    "the messages of an aggregator do not share a card": (
        '"aggregator_on_rank_0": [0],',
        '"aggregator_on_rank_0": [],',
    ),
    "the aggregator is measured on links that are still paced": (
        "network.lift(world)\nfast = ",
        "fast = ",
    ),
    "the tree never comes down": (
        "for reach in reversed(reaches):  # and down again",
        "for reach in []:",
    ),
    "the tree has half of its messages on a network": (
        "rounds = 2 * ceil(log2(n))",
        "rounds = ceil(log2(n))",
    ),
    "the tree's messages are counted as on a network": (
        'few = ("aggregator_on_rank_0", "dedicated_aggregator", "tree_all_reduce")',
        'few = ("aggregator_on_rank_0", "dedicated_aggregator")',
    ),
    "the network's model predicts the machine": (
        "predicted = predict(on_one_machine(n))",
        "predicted = predict(on_network(n))",
    ),
    "bus bandwidth is bytes by time": (
        "least = 2 * (n - 1) / n  # tensors that the busiest rank has to send",
        "least = 1",
    ),
    "the tree is the fastest of the cluster for every size": (
        "    costs = on_network(n).items()\n",
        "    costs = on_one_machine(n).items()\n",
    ),
}

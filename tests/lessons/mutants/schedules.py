"""The lesson schedules, broken on purpose."""

MUTANTS = {
    "the loop is a V": (
        'back = ranks - 1 - rank if shape == "V" else rank',
        "back = ranks - 1 - rank",
    ),
    "a layer sleeps in one node": (
        '        sleep("W", context.chunk)\n        return gradient, None\n',
        "        return gradient, None\n",
    ),
    "a layer ignores its own weights": (
        "weight = SleepForWeights.apply(self.linear.weight, self.chunk)",
        "weight = SleepForWeights.apply(self.linear.weight.detach(), self.chunk)",
    ),
    "a stage has the layers of its neighbour": (
        "nn.Sequential(Layer(2 * rank, 0), Layer(2 * rank + 1, 1))",
        "nn.Sequential(Layer(rank, 0), Layer(rank + n, 1))",
    ),
    "messages are counted twice": (
        "return sum(message.sent for message in messages)",
        "return len(messages)",
    ),
    "interleaved 1F1B has the bubble of 1F1B": (
        "interleaved_bubble = (n - 1) / (2 * m + n - 1)",
        "interleaved_bubble = (n - 1) / (m + n - 1)",
    ),
    "the loss of a micro-batch is not divided by their number": (
        "gradient = 2 / inputs.numel() * (output - targets.chunk(m)[i])",
        "gradient = 2 * m / inputs.numel() * (output - targets.chunk(m)[i])",
    ),
    "the gradient passes tanh unchanged": (
        "before_tanh = gradient * (1 - output**2)",
        "before_tanh = gradient",
    ),
    "each W replaces the one before": (
        "weight_gradient.add_(before_tanh.T @ x)",
        "weight_gradient.copy_(before_tanh.T @ x)",
    ),
    "no W is postponed": (
        """            order.append(("W", i - stage))
""",
        """            order.append(("W", i))
""",
    ),
    "the V is placed as a loop": ('"ZBVZeroBubble": "V"', '"ZBVZeroBubble": "loop"'),
    "the V sends as many messages as the loop": (
        "== 2 * m * (2 * n - 2)",
        "== 2 * m * (2 * n - 1)",
    ),
    "zero-bubble schedules keep less than 1F1B": (
        'most["ZBVZeroBubble"] == [2 * n] * n',
        'most["ZBVZeroBubble"] == [n] * n',
    ),
    "DDP with GPipe needs no shapes": ("trained(name, steps=3, **shapes)", "trained(name, steps=3)"),
    "the trap needs no DDP": (
        "module = DDP(Layer(my_stage), process_group=replicas)",
        "module = Layer(my_stage)",
    ),
    "all pipelines have the targets of the first one": (
        "schedule.step(target=targets.chunk(pipelines)[my_pipeline])",
        "schedule.step(target=targets.chunk(pipelines)[0])",
    ),
    "DualPipeV is placed as a loop": ('"DualPipeV": "V"', '"DualPipeV": "loop"'),
    "the two drawings of one order": ('f"run_order({name})"', '"run_order(postponed)"'),
    "a micro-batch is kept after its W": ("kept.pop(i)", "kept[i]"),
    "the bubble of rank 0 is the bubble of all ranks": (
        "busy = sum(box[4] - box[3] for of_rank in boxes for box in of_rank) / n",
        "busy = sum(box[4] - box[3] for box in boxes[0])",
    ),
    "the bubble counts the boxes of one kind only": (
        "busy = sum(box[4] - box[3] for of_rank in boxes for box in of_rank) / n",
        'busy = sum(box[4] - box[3] for of_rank in boxes for box in of_rank if box[0] != "W") / n',
    ),
    "one zero-bubble schedule is drawn three times": (
        "drawn = headed({name: boxes[name] for name in zero})",
        'drawn = headed({name: boxes["ZBVZeroBubble"] for name in zero})',
    ),
    "the step with postponed Ws is drawn twice": (
        "drawn = headed(by_hand)",
        'drawn = headed({name: by_hand["W postponed"] for name in by_hand})',
    ),
    "a rank drops a micro-batch after its I": ('{"F": 1, "I": 0, "W": -1}', '{"F": 1, "I": -1, "W": 0}'),
}

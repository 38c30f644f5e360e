"""The lesson faster_distributed_rnn, broken on purpose."""

MUTANTS = {
    "trainer and server compute at the same time": (
        "assert earlier.end <= later.begin",
        "assert later.end <= earlier.begin",
    ),
    "the optimizer has no stopwatch": ("DistributedOptimizer(TimedAdam,", "DistributedOptimizer(torch.optim.Adam,"),
    "half of the logits' bytes are predicted": (
        "logits_bytes = words.numel() * (8 + 2 * 4 * (width + width + vocabulary))",
        "logits_bytes = words.numel() * (8 + 4 * (width + width + vocabulary))",
    ),
    "what is beside the payload is forgotten": ("predicted = payload + overhead", "predicted = payload"),
    "a word has 4 bytes": ("few_bytes_bytes = 8 * items", "few_bytes_bytes = 4 * items"),
    "every copy of a row travels": (
        "return self.table.forward(rows)[places]",
        "return self.table.forward(words)",
    ),
    "the logits come back with few bytes": (
        "return self.decoder.forward(output, targets), hidden",
        "return cross_entropy(self.decoder.forward(output).flatten(0, 1), targets.flatten()), hidden",
    ),
    "the model of few bytes is another one": (
        "return cross_entropy(logits.flatten(0, 1), targets.flatten())\n\nclass SendsLoss(",
        "return cross_entropy(logits.flatten(0, 1), targets.flatten()) / 2\n\nclass SendsLoss(",
    ),
    "copies of rows are put where they do not belong": (
        "return self.table.forward(rows)[places]",
        "return self.table.forward(rows)[places.flip(0)]",
    ),
    "the table learns nothing with few bytes": (
        "return self.table.forward(rows)[places]",
        "return self.table.forward(rows).detach()[places]",
    ),
    "the weights are not copied": (
        "reference.local_value().detach().copy_(values)",
        "reference.local_value().detach().copy_(0 * values)",
    ),
    "the timeline of few bytes shows the step with logits": (
        'few_bytes_step = stopwatch.fastest("server", step, few_bytes, few_bytes_optimizer, words, targets)',
        'few_bytes_step = stopwatch.fastest("server", step, sends_logits, logits_optimizer, words, targets)',
    ),
    "the trainer waits for each half": (
        "futures.append(self.decoder.forward_async(output, halves(targets)[half]))",
        "futures.append(self.decoder.forward_async(output, halves(targets)[half])) or futures[-1].wait()",
    ),
    "both halves have the targets of the first": ("halves(targets)[half]", "halves(targets)[0]"),
    "the losses of the halves are added": ("return (first + second) / 2,", "return first + second,"),
    "the race of few bytes runs with logits": (
        '"few bytes": (step, few_bytes, few_bytes_optimizer)',
        '"few bytes": (step, sends_logits, logits_optimizer)',
    ),
    "the model on the devices is another one": (
        "start_from(on_cpu, on_devices)",
        "start_from(sends_logits, on_cpu)",
    ),
    "the link is not paced": ("links := network.limit(world, 1e9)", "links := network.limit(world, 1e11)"),
    "a window has 160 words": (".view(16, -1).t()", ".view(8, -1).t()"),
    "the timeline of the whole window shows the step with logits": (
        'whole_and_halves = {"few bytes": few_bytes_step,',
        'whole_and_halves = {"few bytes": logits_step,',
    ),
    "the race in halves runs whole windows": (
        '"in halves": (step, in_halves, halves_optimizer)',
        '"in halves": (step, few_bytes, few_bytes_optimizer)',
    ),
    "the title names the time in which the trainer waits for the server": (
        'neither = shares["trainer"]["neither computes"]',
        'neither = shares["trainer"]["waits while the other computes"]',
    ),
    "the figure counts twice as many tokens": ("tokens = 320", "tokens = 640"),
    "the single process adds up the gradients of its steps": ("    optimizer.zero_grad()\n", ""),
}

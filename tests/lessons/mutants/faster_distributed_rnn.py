"""The lesson faster_distributed_rnn, broken on purpose."""

MUTANTS = {
    "trainer and server compute at the same time": (
        "assert earlier.end <= later.begin",
        "assert later.end <= earlier.begin",
    ),
    "half of the logits' bytes are predicted": (
        "first_bytes = words.numel() * (8 + 2 * 4 * (width + width + size))",
        "first_bytes = words.numel() * (8 + 4 * (width + width + size))",
    ),
    "what is beside the payload is forgotten": ("predicted = payload + beside", "predicted = payload"),
    "a word has 4 bytes": ("second_bytes = 8 * sent", "second_bytes = 4 * sent"),
    "every copy of a row travels": (
        "vectors = self.table.forward(rows)[places]",
        "vectors = self.table.forward(words)",
    ),
    "the logits come back in the second version": (
        "return self.decoder.forward(output, targets), hidden",
        "return cross_entropy(self.decoder.forward(output).flatten(0, 1), targets.flatten()), hidden",
    ),
    "the second version is another model": (
        "return cross_entropy(logits.flatten(0, 1), targets.flatten())\n\nclass Second(",
        "return cross_entropy(logits.flatten(0, 1), targets.flatten()) / 2\n\nclass Second(",
    ),
    "copies of rows are put where they do not belong": (
        "vectors = self.table.forward(rows)[places]",
        "vectors = self.table.forward(rows)[places.flip(0)]",
    ),
    "the table learns nothing in the second version": (
        "vectors = self.table.forward(rows)[places]",
        "vectors = self.table.forward(rows).detach()[places]",
    ),
    "the weights are not copied": (
        "reference.local_value().detach().copy_(values)",
        "reference.local_value().detach().copy_(0 * values)",
    ),
    "the model on the devices is another one": ("same_weights(on_devices, on_cpu)", "same_weights(on_cpu, first)"),
    "the link is not paced": ("links = network.limit(world, 1e9)", "links = network.limit(world, 1e11)"),
}

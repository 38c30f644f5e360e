"""The lesson distributed_rnn, broken on purpose."""

MUTANTS = {
    "the rows of the bigram model share out less than 1": (
        "counts = (pairs - discount).clamp(min=0) + given_away * unigram",
        "counts = (pairs - discount).clamp(min=0) + 0.9 * given_away * unigram",
    ),
    "the unigram model forgets that it has added 1 for each word": (
        "(len(training) + vocabulary)\n",
        "len(training)\n",
    ),
    "the loss takes columns for classes": (
        "return cross_entropy(logits.flatten(0, 1), targets.flatten())",
        "return cross_entropy(logits.transpose(1, 2), targets) / 2",
    ),
    "targets are the words themselves": (
        "yield columns[top : top + 20], columns[top + 1 : top + 21]",
        "yield columns[top : top + 20], columns[top : top + 20]",
    ),
    "all words equally likely have twice their probability": ("1 / vocabulary))", "2 / vocabulary))"),
    "the decoder is here": (
        'self.decoder = rpc.remote("server", Decoder,',
        'self.decoder = rpc.remote("trainer", Decoder,',
    ),
    "the table travels, not the vectors": (
        "vectors = self.table.rpc_sync().forward(words)",
        "vectors = self.table.rpc_sync().parameter_rrefs()[0].to_here()[words]",
    ),
    "the hidden state is not used": (
        "self.table.rpc_sync().forward(words)\n        output, hidden = self.lstm(vectors.to(self.here), hidden)",
        "self.table.rpc_sync().forward(words)\n        output, hidden = self.lstm(vectors.to(self.here))",
    ),
    "the output comes to the decoder without a graph": (
        "return self.decoder.rpc_sync().forward(output.cpu()), hidden",
        "return self.decoder.rpc_sync().forward(output.detach().cpu()), hidden",
    ),
    "the server is never told that training ends": (
        "for part in (self.table, self.decoder):",
        "for part in ():",
    ),
    "the table drops nothing": (
        "return self.drop(super().forward(words.to(self.weight.device))).cpu()",
        "return super().forward(words.to(self.weight.device)).cpu()",
    ),
    "the cut model has one layer": ("model = version(layers=2)", "model = version()"),
    "the hidden state comes back detached": (
        "    return loss.item(), hidden\n\ndef new_optimizer",
        "    return loss.item(), [state.detach() for state in hidden]\n\ndef new_optimizer",
    ),
    "the optimizer does not get the decoder of the RemoteModule": (
        "return self.table.remote_parameters() + local + self.decoder.remote_parameters()",
        "return self.table.remote_parameters() + local + RemoteModule(\n"
        "            'server', nn.Linear, (96, len(text.words))\n        ).remote_parameters()",
    ),
    "the optimizer ignores its options": (
        "return DistributedOptimizer(kind, model.parameter_rrefs(), **options)",
        "return DistributedOptimizer(kind, model.parameter_rrefs(), lr=options['lr'])",
    ),
    "the hidden state is never carried over in training": (
        "            loss, hidden = step(model, optimizer, *window, hidden)\n",
        "            loss, hidden = step(model, optimizer, *window, None)\n",
    ),
    "the last validation is on the training part": (
        "    validated.append((len(steps), perplexity(model, text.validation)))\n    publish_data",
        "    validated.append((len(steps), perplexity(model, text.training[:7500])))\n    publish_data",
    ),
    "the model learns too little": ("lr=0.008), 3, steps", "lr=0.0001), 1, steps"),
    "<rare> is drawn": ("logits[1] = -math.inf", "logits[1] += 5"),
}

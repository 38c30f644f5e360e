"""The lesson distributed_rnn, broken on purpose."""

MUTANTS = {
    "the server has the same weight as the trainer": (
        'there = rpc.remote("server", Weight, (3.0,))',
        'there = rpc.remote("server", Weight, (2.0,))',
    ),
    "the two weights get twice their gradients": (
        "loss = there.rpc_sync().times(here.value)  # on the server: 3 · 2",
        "loss = 2 * there.rpc_sync().times(here.value)",
    ),
    "only the server's weight is updated": (
        "references = [here.reference(), there.rpc_sync().reference()]",
        "references = [there.rpc_sync().reference()]",
    ),
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
    "the logits that are not flattened have only one row": (
        "logits, _ = OneProcess()(words)",
        "logits, _ = OneProcess()(words[:1])",
    ),
    "the decoder is here": (
        'self.decoder = rpc.remote("server", Decoder,',
        'self.decoder = rpc.remote("trainer", Decoder,',
    ),
    "the table travels, not the vectors": (
        "vectors = self.table.rpc_sync().forward(words)",
        "vectors = self.table.rpc_sync().parameter_rrefs()[0].to_here()[words]",
    ),
    "the hidden state is not used": (
        "self.table.rpc_sync().forward(words)\n        output, hidden = self.lstm(vectors, hidden)",
        "self.table.rpc_sync().forward(words)\n        output, hidden = self.lstm(vectors)",
    ),
    "the output comes to the decoder without a graph": (
        "return self.decoder.rpc_sync().forward(output), hidden",
        "return self.decoder.rpc_sync().forward(output.detach()), hidden",
    ),
    "the optimizer steps before the backward pass": (
        "        dist_autograd.backward(context, [loss])\n        optimizer.step(context)\n    return",
        "        optimizer.step(context)\n        dist_autograd.backward(context, [loss])\n    return",
    ),
    "the step detaches nothing": (
        "        optimizer.step(context)\n    return loss.item(), [state.detach() for state in hidden]",
        "        optimizer.step(context)\n    return loss.item(), hidden",
    ),
    "the step forgets the hidden state of the window before": (
        "        logits, hidden = model.forward(words, hidden)\n        loss = loss_of(logits, targets)\n        dist",
        "        logits, hidden = model.forward(words)\n        loss = loss_of(logits, targets)\n        dist",
    ),
    "the split model of the proof starts from its own weights": ("    start_from(one, split)\n", ""),
    "the optimizer does not get the decoder of the RemoteModule": (
        "return self.table.remote_parameters() + local + self.decoder.remote_parameters()",
        "return self.table.remote_parameters() + local + RemoteModule(\n"
        "            'server', nn.Linear, (96, vocabulary)\n        ).remote_parameters()",
    ),
    "the optimizer ignores its options": (
        "return DistributedOptimizer(kind, references, **options)",
        "return DistributedOptimizer(kind, references, lr=options['lr'])",
    ),
    "the hidden state is never carried over in training": (
        "            loss, hidden = step(model, optimizer, *window, hidden)\n",
        "            loss, hidden = step(model, optimizer, *window, None)\n",
    ),
    "the last validation is on the training part": (
        "    validated.append((len(steps), perplexity(model, validation)))\n    publish_data",
        "    validated.append((len(steps), perplexity(model, training[:7500])))\n    publish_data",
    ),
    "the model learns too little": (
        "lr=0.008)\nsteps, validated = [], []\ntrain(model, adam, 3,",
        "lr=0.0001)\nsteps, validated = [], []\ntrain(model, adam, 1,",
    ),
    "validation forgets the hidden state": (
        "        logits, hidden = model.forward(words, hidden)\n        losses.append",
        "        logits, hidden = model.forward(words)\n        losses.append",
    ),
    "<rare> is drawn": ("logits[1] = -math.inf", "logits[1] += 5"),
    "a low temperature favours unlikely words": ("logits.flatten() / temperature", "logits.flatten() * temperature"),
    "the last result is not published": (
        "    validated.append((len(steps), perplexity(model, validation)))\n    publish_data(results)",
        "    validated.append((len(steps), perplexity(model, validation)))",
    ),
    "the columns leave out a part of the text": ("words[: len(words) // 16 * 16]", "words[: len(words) // 17 * 16]"),
    "the sample reads the same word again and again": ("torch.tensor([drawn[-1:]])", "torch.tensor([drawn[:1]])"),
    "the baseline has the worst discount": (
        'baselines["bigram"] = min(map(perplexity_of, bigrams))',
        'baselines["bigram"] = max(map(perplexity_of, bigrams))',
    ),
    "results are published only at the end": (
        "            steps.append(math.exp(loss))\n            publish_data(results)\n",
        "            steps.append(math.exp(loss))\n",
    ),
    "only three of the six shapes of targets are tried": (
        "from itertools import permutations\n",
        "from itertools import combinations as permutations\n",
    ),
    "the validation curve is of the training part": (
        "                validated.append((len(steps), perplexity(model, validation)))\n            loss",
        "                validated.append((len(steps), perplexity(model, training[:7500])))\n            loss",
    ),
    "an epoch begins with the hidden state of the epoch before": (
        "    for epoch in range(epochs):\n        hidden = None\n",
        "    hidden = None\n    for epoch in range(epochs):\n",
    ),
    "the unigram model counts the validation part": (
        "unigram = (training.bincount(minlength=vocabulary) + 1) / (len(training) + vocabulary)",
        "unigram = (validation.bincount(minlength=vocabulary) + 1) / (len(validation) + vocabulary)",
    ),
}

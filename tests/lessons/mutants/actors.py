"""The lesson actors, broken on purpose."""

MUTANTS = {
    "two threads serve": (
        "        threading.Thread(target=self.serve, args=(instance,), daemon=True).start()",
        "        for _ in range(2):\n"
        "            threading.Thread(target=self.serve, args=(instance,), daemon=True).start()",
    ),
    "an error is a value": ("return answer.then(torch.futures.Future.wait)", "return answer"),
    "an error ends the actor": (
        "            except Exception as error:\n                answer.set_exception(error)",
        "            except Exception as error:\n                answer.set_exception(error)\n                return",
    ),
    "a cast reports its error": (
        "        self.messages.put((method, arguments, torch.futures.Future()))",
        "        self.call(method, *arguments).wait()",
    ),
    "a cast does not wait for the mailbox": (
        "self.mailbox.rpc_sync(timeout=self.timeout).cast(",
        "self.mailbox.rpc_async(timeout=self.timeout).cast(",
    ),
    "RPC keeps the order": (
        'first = notes.mailbox.rpc_async().cast("take", 1, Parcel())\n',
        'first = notes.mailbox.rpc_async().cast("take", 1, Parcel())\nfirst.wait()\n',
    ),
    "a round ends by itself": (
        "        self.learn({name: episode.wait() for name, episode in playing.items()})",
        "        time.sleep(4)",
    ),
    "the draws depend on who asks first": ("generator=self.draws[name]", "generator=None"),
    "one process plays other episodes": (
        "Local(Observer, name, SEED + r)",
        "Local(Observer, name, SEED + 2 * r)",
    ),
    "the agent makes no step": ("    self.optimizer.step()\n", ""),
    "an age begins with the next step": (
        "self.version - self.made_with[name]))",
        "self.version - self.made_with[name] + 1))",
    ),
    "a batch is made with older weights": (
        "        self.made_with[name] = self.version\n",
        "        self.made_with[name] = self.version - 1\n",
    ),
    "batches under way have no age": ("sum(ages + under_way)", "sum(ages)"),
    "no generator is slow": ("slowest if r == 1 else 0.005", "0.005"),
    "the actor gets its four calls one after another": (
        'answers = [counter.call("add_one") for _ in range(4)]\nunder',
        'answers = []\nfor _ in range(4):\n    answers.append(counter.call("add_one"))\n    answers[-1].wait()\nunder',
    ),
    "the figure shows the first run": (
        'at_steps, under_way = runs["one slow"]',
        'at_steps, under_way = runs["one pace"]',
    ),
    "the loss goes the wrong way": (
        "loss = -(advantages * torch.stack(log_probs)).mean()",
        "loss = (advantages * torch.stack(log_probs)).mean()",
    ),
    "all observers' draws begin alike": (
        "torch.Generator().manual_seed(SEED + r)",
        "torch.Generator().manual_seed(SEED)",
    ),
    "the agent learns from each episode at once": (
        "        if len(self.episodes) == len(self.observers):",
        "        if self.episodes:",
    ),
    "all generators but the first are slow": ("slowest if r == 1 else 0.005", "slowest if r != 1 else 0.005"),
}

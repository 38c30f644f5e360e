"""The lesson cartpole_solved, broken on purpose."""

MUTANTS = {
    "learn subtracts no baseline": (
        "advantages = (returns - returns.mean()) / returns.std()\n    log_probs",
        "advantages = returns / returns.std()\n    log_probs",
    ),
    "learn takes the sum": (
        "(-advantages * log_probs).mean().backward()",
        "(-advantages * log_probs).sum().backward()",
    ),
    "learn makes no step": ("    self.optimizer.step()\n", ""),
    "learn does not discount": ("following = reward + 0.99 * following", "following = reward + following"),
    "learn goes the wrong way": ("(-advantages * log_probs)", "(advantages * log_probs)"),
    "version 1 makes one call a step": ("    reports = True", "    reports = False"),
    "version 2 makes two": ("    reports = False", "    reports = True"),
    "a truncated episode counts as terminated": (
        'end = "terminated" if terminated else "truncated"',
        'end = "terminated"',
    ),
    "the step after the end counts": ("column[:length, place]", "column[: length + 1, place]"),
    "actions belong to the step before": ("(before, actions, torch", "(before, actions.roll(1), torch"),
    "environments are mixed": ("column[:length, place]", "column[:length, place - 1]"),
    "the last step is lost": ("column[:length, place]", "column[: length - 1, place]"),
    "a fall counts as truncated": ('ends[place] = "terminated"', 'ends[place] = "truncated"'),
    "all observers have one seed": ("observer, (SEED + r, *arguments))", "observer, (SEED, *arguments))"),
    "the rounds of the curves differ in size": ("Agent(Observer), runs=share)", "Agent(Observer), runs=share // 2)"),
    "each request is answered alone": (
        "if not agent.waiting or len(agent.waiting) < agent.playing:",
        "if not agent.waiting:",
    ),
    "the network runs under the lock": (
        "drawn = agent.draw(torch.cat(observations))",
        "with agent.lock: drawn = agent.draw(torch.cat(observations))",
    ),
    "one observer gets the error of the network": (
        "for _, actions in requests:\n            actions.set_exception(error)",
        "for _, actions in requests[-1:]:\n            actions.set_exception(error)",
    ),
    "the running reward moves faster": ("running.append(running[-1] + 0.05", "running.append(running[-1] + 0.1"),
    "an observer that has finished is still counted": ("            self.playing -= 1\n", "            pass\n"),
    "the greedy agent draws its actions": (
        "return agent.policy(observations).argmax(dim=1)",
        "return Categorical(logits=agent.policy(observations)).sample()",
    ),
    "the slower round counts": ("(version, max(runs))", "(version, min(runs))"),
}

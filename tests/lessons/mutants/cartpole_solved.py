"""The lesson cartpole_solved, broken on purpose."""

MUTANTS = {
    "learn subtracts no mean": (
        "weights = (returns - returns.mean()) / returns.std()\n    log_probs",
        "weights = returns / returns.std()\n    log_probs",
    ),
    "learn takes the sum": ("(-weights * log_probs).mean().backward()", "(-weights * log_probs).sum().backward()"),
    "learn makes no step": ("    self.optimizer.step()\n", ""),
    "learn does not discount": ("following = reward + 0.99 * following", "following = reward + following"),
    "learn goes the wrong way": ("(-weights * log_probs)", "(weights * log_probs)"),
    "version 1 makes one call a step": ("    reports = True", "    reports = False"),
    "version 2 makes two": ("    reports = False", "    reports = True"),
    "the step after the end counts": ("playing.sum(dim=0).tolist()", "(1 + playing.sum(dim=0)).tolist()"),
    "actions belong to the step before": (
        "actions[:length, column], returns",
        "actions.roll(1, 0)[:length, column], returns",
    ),
    "environments are mixed": ("seen[:length, column]", "seen[:length, column - 1]"),
    "the last step is lost": (
        "seen[:length, column], actions[:length, column], returns",
        "seen[: length - 1, column], actions[: length - 1, column], returns[:-1]",
    ),
    "each request is answered alone": (
        "if not agent.waiting or len(agent.waiting) < agent.playing:",
        "if not agent.waiting:",
    ),
    "the running reward moves faster": ("running.append(running[-1] + 0.05", "running.append(running[-1] + 0.1"),
}

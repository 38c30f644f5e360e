"""The lesson reinforcement_learning, broken on purpose."""

MUTANTS = {
    "the gradient is that of the probability": ("logits.log_softmax(dim=0)[action]", "logits.softmax(dim=0)[action]"),
    "nothing is subtracted": ("drawn_0 = (10 - 10.5) *", "drawn_0 = 10 *"),
    "a reset to one seed begins elsewhere each time": (
        "environment.reset(seed=seed)\n    start",
        "environment.reset()\n    start",
    ),
    "a truncated episode has failed": ("return start, truncated", "return start, terminated"),
    "observers share a seed": ("(SEED + r, *arguments)", "(SEED, *arguments)"),
    "a step takes one call from the start": (
        "        agent.rpc_sync().report_reward(name, reward)\n    return",
        "    return",
    ),
    "the rewards of all are one": (
        '"apart": torch.cat([discounted(failure), discounted(success)])',
        '"apart": discounted(failure + success)',
    ),
    "learn joins the returns": (
        "returns = torch.cat([discounted(rewards) for rewards in episodes])",
        "returns = discounted([reward for rewards in episodes for reward in rewards])",
    ),
    "learn subtracts no mean": (
        "return (returns - returns.mean()).tolist()",
        "return returns.tolist()",
    ),
    "learn goes the wrong way": ("(-weights * torch", "(weights * torch"),
    "learn makes no step": ("    self.optimizer.step()\n", ""),
    "learn does not discount": ("following = reward + 0.99 * following", "following = reward + following"),
    "one call is two": (
        "            rewards.append(reward)\n",
        "            rewards.append(reward)\n            agent.rpc_sync().report_reward(name, reward)\n",
    ),
    "half an episode is kept": ("del self.observers[other], self.log_probs[other]", "del self.observers[other]"),
    "the failed one is called again": ("del self.observers[other], self.log_probs[other]", "del self.log_probs[other]"),
    "the others play on": (
        "                del self.observers[other], self.log_probs[other]",
        "                del self.observers[other], self.log_probs[other]\n                break",
    ),
    "the death ends the training": ("agent = SteadyAgent(OneCallObserver)", "agent = OneCallAgent(OneCallObserver)"),
    "nobody learns after the death": (
        "    if agent.rewards:  # with WORLD_SIZE = 2 nobody is left",
        "    if len(agent.rewards) == n - 1:",
    ),
    "the running reward follows the largest reward": ("(min(rewards) - running[-1])", "(max(rewards) - running[-1])"),
    "the running reward follows the round before": ("for rewards in rounds:", "for rewards in [[40.0], *rounds[:-1]]:"),
}

"""The lesson reinforcement_learning, broken on purpose."""

_DROP = "del agent.observers[observer], agent.log_probs[observer], agent.rewards[observer]"

MUTANTS = {
    "a truncated episode has failed": (
        'return steps, "terminated" if terminated else "truncated"',
        'return steps, "terminated"',
    ),
    "the rule pushes to the wrong side": (
        "observation[2] + 0.5 * observation[3] > 0",
        "observation[2] + 0.5 * observation[3] < 0",
    ),
    "an observer has no seed of its own": ("starting_angles(SEED + rank)", "starting_angles(SEED)"),
    "observers share a seed": ("(SEED + r, *arguments)", "(SEED, *arguments)"),
    "every episode begins at the same start": (
        "reset(seed=seed)  # only once: later resets continue the random sequence\n\n"
        "    def run_episode(self, agent):\n        observation, _ = self.environment.reset()",
        "reset(seed=seed)\n        self.seed = seed\n\n    def run_episode(self, agent):\n"
        "        observation, _ = self.environment.reset(seed=self.seed)",
    ),
    "a step takes one call from the start": (
        "            agent.rpc_sync().report_reward(name, reward)\n        return",
        "        return",
    ),
    "the agent makes no step": ("    self.optimizer.step()\n", ""),
    "gradients add up over rounds": ("    self.optimizer.zero_grad()\n", ""),
    "a round is forgotten": (
        "        agent.learn()\n",
        "        agent.learn() if len(agent.rewards['observer1']) > 20 else None\n",
    ),
    "the gradient is that of the probability": ("logits.log_softmax(dim=0)[action]", "logits.softmax(dim=0)[action]"),
    "nothing is subtracted": ("drawn_0 = (10 - baseline) *", "drawn_0 = 10 *"),
    "the rewards of all are one": (
        '"apart": torch.cat([discounted(failure), discounted(success)])',
        '"apart": discounted(failure + success)',
    ),
    "the loss joins the episodes": (
        "returns = torch.cat([discounted(of_episode) for of_episode in rewards])",
        "returns = discounted([reward for of_episode in rewards for reward in of_episode])",
    ),
    "the loss has no baseline": ("advantages = returns - returns.mean()", "advantages = returns"),
    "the loss goes the wrong way": ("return -(advantages * flat).mean()", "return (advantages * flat).mean()"),
    "the loss is a sum": ("return -(advantages * flat).mean()", "return -(advantages * flat).sum()"),
    "the loss does not discount": (
        "def discounted(rewards):\n    returns = []\n    following = 0.0\n    for reward in reversed(rewards):\n"
        "        following = reward + 0.99 * following",
        "def discounted(rewards):\n    returns = []\n    following = 0.0\n    for reward in reversed(rewards):\n"
        "        following = reward + following",
    ),
    "a report of a reward runs the policy as well": (
        "        self.rewards[observer].append(reward)",
        "        self.rewards[observer].append(reward)\n        self.policy(torch.zeros(4))",
    ),
    "one call is two": (
        "            rewards.append(reward)\n",
        "            rewards.append(reward)\n            agent.rpc_sync().report_reward(name, reward)\n",
    ),
    "half an episode is kept": (_DROP, "del agent.observers[observer], agent.rewards[observer]"),
    "the failed one is called again": (_DROP, "del agent.log_probs[observer], agent.rewards[observer]"),
    "the others play on": (_DROP, f"{_DROP}\n            break"),
    "a ValueError passes": ("        except Exception:", "        except RuntimeError:"),
    "a death ends the training": ("        except Exception:", "        except ValueError:"),
    "nobody learns after the death": ("    if agent.rewards:", "    if len(agent.rewards) == n - 1:"),
    "another observer dies": ("[world.pids[-1], signal.SIGKILL]", "[world.pids[1], signal.SIGKILL]"),
    "the agent takes the likelier action": (
        "action = distribution.sample()",
        "action = distribution.logits.argmax()",
    ),
    "the agent keeps probabilities": (
        "self.log_probs[observer].append(distribution.log_prob(action))",
        "self.log_probs[observer].append(distribution.probs[action])",
    ),
    "the agent keeps an RRef to itself": ("me = rpc.RRef(agent)", "me = agent.me = rpc.RRef(agent)"),
    "the observer sends its first observation again and again": (
        "            observation, reward, terminated, truncated, _ = self.environment.step(action)\n"
        "            agent.rpc_sync().report_reward(name, reward)",
        "            _, reward, terminated, truncated, _ = self.environment.step(action)\n"
        "            agent.rpc_sync().report_reward(name, reward)",
    ),
    "an observer of one call a step ignores the action": (
        "self.environment.step(action)\n            rewards.append(reward)",
        "self.environment.step(1)\n            rewards.append(reward)",
    ),
    "observers cut an episode after 200 steps": ("max_steps=500", "max_steps=200"),
}

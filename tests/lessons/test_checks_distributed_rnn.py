"""25_distributed_rnn: the perplexity that its model reaches with other seeds."""

import pytest
from answer_files import setup_of
from answers import cell

NAME = "25_distributed_rnn.ipynb"
SETUP = setup_of("distributed_rnn")


@pytest.mark.nightly
@pytest.mark.alone
def test_the_model_is_better_than_the_bigrams_with_three_seeds(world):
    for contains in (
        "text = datasets.help_texts()",
        "class OneProcess(",
        "def windows(",
        "class Cut:",
        "class ThroughRRefs(",
        "def step_of_the_lesson(",
        "CutModel = accepted(",
        "def start_from(",
        "def perplexity(",
    ):
        world.view.execute(cell(NAME, contains), silent=True)
    world.view.client[0].execute(cell(NAME, "baselines = {"), silent=True, block=True)
    training = cell(NAME, "train(model, adam,")
    for seed in (1, 2, 3):
        world.view["SEED"] = seed
        # Nothing listens for what is published.
        world.view.client[0].execute(training, silent=True, block=True)
        reached, bigram = world.view.client[0].pull(["validated[-1][1]", "baselines['bigram']"], block=True)
        assert reached < 0.98 * bigram, (seed, reached, bigram)

"""The checks of 20_distributed_rnn, and the perplexity that its model reaches with other seeds."""

import textwrap

import pytest
from answers import cell, says

import helpers.world
from helpers import World, checks

NAME = "20_distributed_rnn.ipynb"


def skeleton(name):
    return cell(NAME, f"{name}(" if name == "def clip" else name)


def solution(name):
    return cell(f"solutions/{NAME}", f"{name}(" if name == "def clip" else name)


SETUP = cell(NAME, "rpc.init_rpc(")


@pytest.fixture
def world(worlds):
    """A trainer and a server, the same for all tests of this module."""
    if not worlds or helpers.world._current is not worlds[-1]:
        worlds.append(World(2))
        worlds[-1].view.execute(SETUP, silent=True)
    return worlds[-1]


# ---------------------------------------------------------------- the forward that the learner writes


def said_of(world, forward):
    """Return what the check says of `MyModel` with these lines for its forward."""
    for contains in ("text = datasets.help_texts()", "class Part:", "class Cut:"):
        world.view.execute(cell(NAME, contains), silent=True)
    answer = "class MyModel(Cut):\n    def forward(self, words, hidden=None):\n"
    return says(checks.distributed_rnn.MyModel, world, answer + textwrap.indent(textwrap.dedent(forward), " " * 8))


FORWARD = """
vectors = self.table.rpc_sync().forward(words)
output, hidden = self.lstm(vectors.to(self.here), hidden)
return self.decoder.rpc_sync().forward(output.cpu()), hidden
"""
CUT = "Solved. Logits, hidden states and gradients are those of one process, by two calls in each forward."


@pytest.mark.parametrize("change", [("", ""), ("rpc_sync().forward(words)", "rpc_async().forward(words).wait()")])
def test_my_forward_that_is_right(world, change):
    assert said_of(world, FORWARD.replace(*change)) == CUT


def test_my_forward_by_remote_calls(world):
    assert said_of(world, FORWARD.replace("rpc_sync().forward(words)", "remote().forward(words).to_here()")) == CUT


def test_my_forward_solution_and_the_lesson_s_own(world):
    for contains in ("text = datasets.help_texts()", "class Part:", "class Cut:"):
        world.view.execute(cell(NAME, contains), silent=True)
    assert says(checks.distributed_rnn.MyModel, world, solution("class MyModel(")) == CUT
    assert (
        says(
            checks.distributed_rnn.MyModel, world, cell(NAME, "class ThroughRRefs(").replace("ThroughRRefs", "MyModel")
        )
        == CUT
    )


def test_my_forward_skeleton(world):
    skeleton_of_forward = cell(NAME, "class MyModel(Cut)").partition("hidden=None):\n")[2]
    assert said_of(world, skeleton_of_forward) == ("Not yet. In one forward the server was asked 0 times, expected 2.")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("self.decoder.rpc_sync().forward(output.cpu())", "torch.zeros(*words.shape, 1000)"),
            "In one forward the server was asked 1 times, expected 2.",
        ),
        (("self.here), hidden)", "self.here))"), "The logits of window 1 differ, expected those of one process."),
        (("output.cpu()", "vectors"), "The logits of window 0 differ, expected those of one process."),
        (
            ("output.cpu()), hidden", "output.cpu()), None"),
            "The hidden state after window 0 differs, expected that of one process.",
        ),
        (
            ("output.cpu()),", "output.cpu()).detach(),"),
            "The logits have no graph, expected one: nothing can be learnt from them.",
        ),
        (
            ("output.cpu()), hidden", "output.cpu())"),
            "`forward` returned a tensor of shape (5, 4, 1000), expected a pair: logits and hidden state.",
        ),
    ],
)
def test_my_forward_that_is_wrong(world, change, message):
    assert FORWARD.replace(*change) != FORWARD
    assert said_of(world, FORWARD.replace(*change)) == f"Not yet. {message}"


@pytest.mark.parametrize("change", [("output.cpu()", "output.detach().cpu()"), ("vectors.to(", "vectors.detach().to(")])
def test_my_forward_that_detaches(world, change):
    world.view.execute("rpc._set_rpc_timeout(3)")
    verdict = said_of(world, FORWARD.replace(*change))
    world.view.execute("rpc._set_rpc_timeout(20)")
    assert verdict == (
        "Not yet. Backward waited in vain for a gradient, expected one for each message: something is detached."
    )
    assert said_of(world, FORWARD) == CUT


def test_my_forward_on_fewer_ranks_than_all(world):
    world.view.execute("del MyModel", silent=True)
    assert repr(checks.distributed_rnn.MyModel(world)) == (
        "Not yet. Rank 0 has no function `MyModel`: run the cell that defines it, then this check."
    )


# ---------------------------------------------------------------- clip


def test_clip_solution(world):
    assert says(checks.distributed_rnn.clip, world, solution("def clip")) == (
        "Solved. The gradients of both ranks are those of one process, above the limit and below it."
    )


def test_clip_skeleton(world):
    assert says(checks.distributed_rnn.clip, world, skeleton("def clip")) == (
        "Not yet. `clip` returned 0.0000, expected the norm of all gradients: 0.7308."
    )


CLIP_BY_THE_NORMS_OF_THE_OWNERS = """
    def norm_here(context):
        return torch.nn.utils.get_total_norm(list(dist_autograd.get_gradients(context).values())).item()

    def shrink(context, factor):
        for gradient in dist_autograd.get_gradients(context).values():
            gradient *= factor

    def clip(context, references, limit):
        owners = sorted({reference.owner_name() for reference in references})
        norm = math.hypot(*[rpc.rpc_sync(owner, norm_here, (context,)) for owner in owners])
        for owner in owners:
            rpc.rpc_sync(owner, shrink, (context, min(1.0, limit / norm)))
        return norm
"""
CLIP_BY_EACH_PARAMETER = """
    def square(context, reference):
        return dist_autograd.get_gradients(context)[reference.local_value()].square().sum()

    def scale(context, reference, factor):
        dist_autograd.get_gradients(context)[reference.local_value()].mul_(factor)

    def clip(context, references, limit):
        norm = sum(rpc.remote(r.owner(), square, (context, r)).to_here() for r in references).sqrt()
        if norm > limit:
            for r in references:
                rpc.rpc_sync(r.owner(), scale, (context, r, limit / norm))
        return norm
"""


@pytest.mark.parametrize(
    "answer",
    [
        CLIP_BY_THE_NORMS_OF_THE_OWNERS,
        CLIP_BY_THE_NORMS_OF_THE_OWNERS.replace("limit / norm", "limit / (norm + 1e-6)"),  # as PyTorch does
        CLIP_BY_EACH_PARAMETER,
    ],
)
def test_clip_in_other_styles(world, answer):
    assert says(checks.distributed_rnn.clip, world, "import math\n" + textwrap.dedent(answer)).startswith("Solved. ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("** 0.5", ""), "`clip` returned 0.5341, expected the norm of all gradients: 0.7308."),
        (
            ("if norm > limit:", "if norm < 0:"),
            "With a norm of 0.7308 and a limit of 0.3654, the gradients on server have norm 0.2213 afterwards, "
            "expected 0.1107.",
        ),
        (
            ("if norm > limit:", "if True:"),
            "With a norm of 0.7308 and a limit of 1.4617, the gradients on server have norm 0.4427 afterwards, "
            "expected 0.2213.",
        ),
        (("return norm", "return None"), "`clip` returned None, expected the norm of all gradients, a number."),
        (
            ("part.wait() for part in parts", "part.wait() for part in parts[:1]"),
            "`clip` returned 0.2213, expected the ",
        ),
        (("gradients[reference.local_value()] **", "grads ** "), "Rank 0 raised NameError(\"name 'grads' is not "),
    ],
)
def test_clip_that_is_wrong(world, change, message):
    answer = solution("def clip").replace(*change)
    assert answer != solution("def clip")
    assert says(checks.distributed_rnn.clip, world, answer).startswith(f"Not yet. {message}")


def test_clip_by_the_norm_of_each_rank(world):
    answer = """
        def clip_here(context, limit):
            gradients = dist_autograd.get_gradients(context).values()
            norm = sum((gradient**2).sum().item() for gradient in gradients) ** 0.5
            for gradient in gradients:
                gradient.mul_(min(1, limit / norm))
            return norm

        def clip(context, references, limit):
            owners = {reference.owner_name() for reference in references}
            return sum(rpc.rpc_sync(owner, clip_here, (context, limit)) ** 2 for owner in owners) ** 0.5
    """
    assert says(checks.distributed_rnn.clip, world, answer).startswith(
        "Not yet. With a norm of 0.7308 and a limit of 0.3654, the gradients on server have norm 0.2213 "
    )


def test_clip_that_looks_for_all_gradients_on_the_trainer(world):
    answer = """
        def clip(context, references, limit):
            gradients = dist_autograd.get_gradients(context)
            return sum((gradients[reference.to_here()] ** 2).sum() for reference in references) ** 0.5
    """
    assert says(checks.distributed_rnn.clip, world, answer) == (
        "Not yet. Rank 0 raised KeyError: this rank has no gradient of that parameter; its owner has."
    )


# ---------------------------------------------------------------- two_layers


def test_two_layers_solution(world):
    assert says(checks.distributed_rnn.TwoLayers, world, solution("class TwoLayers")) == (
        "Solved. Both layers compute and learn as nn.LSTM does, the second one on server."
    )


def test_two_layers_skeleton(world):
    assert says(checks.distributed_rnn.TwoLayers, world, skeleton("class TwoLayers")) == (
        "Not yet. Parameter 4 of 8 is owned by trainer, expected server."
    )


TWO_LAYERS_BY_AN_RREF = """
    def references_there(module):
        return [rpc.RRef(parameter) for parameter in module.local_value().parameters()]

    class TwoLayers:
        def __init__(self, width, owner):
            self.here = nn.LSTM(width, width)
            self.there = rpc.remote(owner, nn.LSTM, (width, width))

        def forward(self, vectors, hidden=(None, None)):
            output, first = self.here(vectors, hidden[0])
            output, second = self.there.rpc_sync().forward(output, hidden[1])
            return output, [first, second]

        def parameter_rrefs(self):
            there = rpc.rpc_sync(self.there.owner(), references_there, (self.there,))
            return [rpc.RRef(parameter) for parameter in self.here.parameters()] + there
"""


@pytest.mark.parametrize(
    "answer",
    [
        TWO_LAYERS_BY_AN_RREF,
        TWO_LAYERS_BY_AN_RREF.replace(
            "self.there.rpc_sync().forward(output, hidden[1])",
            "rpc.rpc_async(self.there.owner(), call, (self.there, output, hidden[1])).wait()",
        )
        + """
    def call(module, *arguments):
        return module.local_value()(*arguments)
""",
        solution("class TwoLayers")
        .replace("nn.LSTM(width, width)", 'RemoteModule("trainer", nn.LSTM, (width, width))')
        .replace("[rpc.RRef(parameter) for parameter in self.first.parameters()]", "self.first.remote_parameters()"),
    ],
    ids=["an RRef", "a future", "both by RPC"],
)
def test_two_layers_in_other_styles(world, answer):
    assert says(checks.distributed_rnn.TwoLayers, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("self.second(output, hidden[1])", "self.second(output)"),
            "In window 1 the output is not that of nn.LSTM with two layers.",
        ),
        (
            ("return output, (first, second)", "return output, (second, first)"),
            "After window 0 the hidden state of layer 0 is not that of nn.LSTM with two layers.",
        ),
        (
            ("self.second(output, hidden[1])", "self.second(output.detach(), hidden[1])"),
            "In window 0 the gradient of parameter 0 is not that of nn.LSTM with two layers.",
        ),
        (
            ("return local + self.second.remote_parameters()", "return local"),
            "`parameter_rrefs` returned 4 parameters, expected 8.",
        ),
        (
            ("return local + self.second.remote_parameters()", "return self.second.remote_parameters() + local"),
            "Parameter 0 of 8 is owned by server, expected trainer.",
        ),
        (
            ("nn.LSTM, (width, width)", "nn.LSTM, (2 * width, width)"),
            "Parameter 4 of 8 has shape (16, 8), expected (16, 4).",
        ),
        (
            ("return output, (first, second)", "return output"),
            "In window 0 `forward` returned a tensor of shape (5, 3, 4), expected a pair: output, hidden states of "
            "both.",
        ),
        (
            ("return output, (first, second)", "return vectors, (first, second)"),
            "In window 0 the output has no graph, so nothing can be learnt from it.",
        ),
        (
            ("return output, (first, second)", "return output, first"),
            "In window 0 the hidden states are not two pairs of tensors, one for each layer.",
        ),
        (
            ("return local + self.second.remote_parameters()", "return list(self.first.parameters()) * 2"),
            "`parameter_rrefs` returned a Parameter at place 0, expected an RRef.",
        ),
        (("self.first(vectors", "self.first(vector"), "Rank 0 raised NameError: name 'vector' is not defined"),
    ],
)
def test_two_layers_that_are_wrong(world, change, message):
    answer = solution("class TwoLayers").replace(*change)
    assert answer != solution("class TwoLayers")
    assert says(checks.distributed_rnn.TwoLayers, world, answer) == f"Not yet. {message}"


def test_an_answer_that_is_not_there(world):
    world.view.execute("globals().pop('clip', None)")
    assert repr(checks.distributed_rnn.clip(world)) == (
        "Not yet. Rank 0 has no function `clip`: run the cell that defines it, then this check."
    )


# ---------------------------------------------------------------- three ranks, three seeds


def test_the_solutions_with_a_third_rank():
    world = World(3)
    try:
        world.view.execute(SETUP)
        assert says(checks.distributed_rnn.clip, world, solution("def clip")).startswith("Solved. ")
        assert says(checks.distributed_rnn.TwoLayers, world, solution("class TwoLayers")).endswith(" on spare2.")
        assert says(checks.distributed_rnn.TwoLayers, world, skeleton("class TwoLayers")).startswith("Not yet. ")
    finally:
        world.stop()


@pytest.mark.nightly
@pytest.mark.alone
def test_the_model_is_better_than_the_bigrams_with_three_seeds(world):
    for contains in (
        "text = datasets.help_texts()",
        "def bigram(",
        "def loss_of(",
        "def windows(",
        "class Part:",
        "class Cut:",
        "class ThroughRRefs(",
        "CutModel = accepted(",
        "def step(",
        "def start_from(",
        "def perplexity(",
        "def train(",
    ):
        world.view.execute(cell(NAME, contains), silent=True)
    training = cell(NAME, "train(model, new_optimizer(")
    for seed in (1, 2, 3):
        world.view["SEED"] = seed
        # Nothing listens for what is published.
        world.view.client[0].execute(training, silent=True, block=True)
        reached, bigram = world.view.client[0].pull(["validated[-1][1]", "baselines['bigram']"], block=True)
        assert reached < 0.98 * bigram, (seed, reached, bigram)

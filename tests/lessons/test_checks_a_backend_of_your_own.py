"""The checks of 07_a_backend_of_your_own: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import checks

LESSON, SOLUTIONS = "07_a_backend_of_your_own.ipynb", "solutions/07_a_backend_of_your_own.ipynb"
SETUP = "\n".join(
    [
        cell(SOLUTIONS, "import select"),
        "import threading",
        "from itertools import zip_longest",
        *[cell(SOLUTIONS, name) for name in ("def connect(", "def as_bytes(", "class Done(", "class Links(")],
        *[cell(SOLUTIONS, name) for name in ("class Summing(", "class Ring(", 'register("ring"')],
    ]
)


def solution(name):
    return cell(SOLUTIONS, f"class {name}(")


def skeleton(name):
    return cell(LESSON, f"{name}(")


# ---------------------------------------------------------------- my_exchange

OF_THE_LESSON = cell(SOLUTIONS, "def my_exchange(")

IN_PIECES = """
def my_exchange(right, left, outgoing, incoming):
    while outgoing or incoming:
        piece, outgoing = outgoing[:65536], outgoing[65536:]
        part, incoming = incoming[:65536], incoming[65536:]
        right.sendall(piece)
        while part:
            received = left.recv_into(part)
            if received == 0:
                raise ConnectionError("gone")
            part = part[received:]
"""

WITH_A_THREAD = """
def my_exchange(right, left, outgoing, incoming):
    thread = threading.Thread(target=right.sendall, args=[outgoing])
    thread.start()
    try:
        place = 0
        while place < len(incoming):
            received = left.recv(min(len(incoming) - place, 2**20))
            if not received:
                raise ConnectionResetError("the end")
            incoming[place : place + len(received)] = received
            place += len(received)
    finally:
        thread.join()
"""

WITHOUT_WAITING = """
def my_exchange(right, left, outgoing, incoming):
    right.setblocking(False)
    left.setblocking(False)
    end = time.monotonic() + 5
    sent = received = 0
    while sent < len(outgoing) or received < len(incoming):
        if time.monotonic() > end:
            raise TimeoutError("nobody came")
        try:
            sent += right.send(outgoing[sent:])
        except BlockingIOError:
            pass
        try:
            if received < len(incoming):
                number = left.recv_into(incoming[received:])
                if not number:
                    raise ConnectionAbortedError("the end")
                received += number
        except BlockingIOError:
            time.sleep(0)
"""


@pytest.mark.parametrize("answer", [OF_THE_LESSON, IN_PIECES, WITH_A_THREAD, WITHOUT_WAITING])
def test_exchanges_that_are_right(world, answer):
    assert says(checks.a_backend_of_your_own.my_exchange, world, answer) == (
        "Solved. 4 bytes and 32 MiB went round the ring, and nothing at all, and the end of a connection was noticed."
    )


RECEIVES_FIRST = """
def my_exchange(right, left, outgoing, incoming):
    while incoming:
        incoming = incoming[left.recv_into(incoming) :]
    right.sendall(outgoing)
"""

SENDS_ONCE = """
def my_exchange(right, left, outgoing, incoming):
    right.send(outgoing)
    while incoming:
        incoming = incoming[left.recv_into(incoming) :]
"""

RECEIVES_ONCE = """
def my_exchange(right, left, outgoing, incoming):
    thread = threading.Thread(target=right.sendall, args=[outgoing])
    thread.start()
    if incoming:
        left.recv_into(incoming)
    thread.join()
"""

AS_LONG_AS_BOTH = OF_THE_LESSON.replace("while outgoing or incoming:", "while outgoing and incoming:")
WITHOUT_THE_END = OF_THE_LESSON.replace(
    """            if not received:
                raise ConnectionError("the left neighbour has closed the connection")
""",
    "",
)
RETURNS_AT_THE_END = OF_THE_LESSON.replace(
    'raise ConnectionError("the left neighbour has closed the connection")', "return"
)


@pytest.mark.parametrize(
    ("answer", "start", "end"),
    [
        (skeleton("def my_exchange"), "32 MiB: on rank ", "It was stuck: who sends has to receive meanwhile."),
        (RECEIVES_FIRST, "4 bytes: on rank ", "It was stuck: who sends has to receive meanwhile."),
        (SENDS_ONCE, "32 MiB: on rank ", "It was stuck: who sends has to receive meanwhile."),
        (RECEIVES_ONCE, "32 MiB: on rank ", ""),
        (AS_LONG_AS_BOTH, "", "is not what the left neighbour sent."),
        (WITHOUT_THE_END, "the left neighbour has closed the connection: on rank 1 the connection has ended, and", ""),
        (RETURNS_AT_THE_END, "the left neighbour has closed the connection: on rank 1 my_exchange returned", ""),
        ("def my_exchange(*arguments):\n    missing", "4 bytes: on rank 0 NameError: name 'missing'", ""),
    ],
    ids=["skeleton", "receives first", "sends once", "receives once", "both", "spins", "returns", "error"],
)
def test_exchanges_that_are_wrong(world, answer, start, end):
    said = says(checks.a_backend_of_your_own.my_exchange, world, answer)
    assert said.startswith(f"Not yet. {start}") and said.endswith(end), said


# ---------------------------------------------------------------- sharding

BY_HOPS = """
class Sharding(Ring):
    def reduce_scatter(self, outputs, inputs, opts):
        rank, n = self.rank(), self.size()
        parts = [part.clone() for part in inputs[0]]
        received = torch.empty_like(parts[0])
        for step in range(n - 1):
            self.exchange(parts[(rank - step - 1) % n], received)
            parts[(rank - step - 2) % n] += received
        outputs[0].copy_(parts[rank])
        return Done(outputs)
"""

TO_THE_LEFT = """
class Sharding(Ring):
    def reduce_scatter(self, outputs, inputs, opts):
        rank, n = self.rank(), self.size()
        stacked = torch.stack(inputs[0])
        for distance in range(n - 1, 0, -1):
            outgoing = stacked[(rank + distance) % n]
            incoming = torch.empty_like(outgoing)
            self.exchange(outgoing, incoming)
            stacked[(rank + distance - 1) % n].add_(incoming)
        torch.mul(stacked[rank], 1, out=outputs[0])
        return Done(outputs)
"""


@pytest.mark.parametrize("answer", [solution("Sharding"), BY_HOPS, TO_THE_LEFT])
def test_reduce_scatters_that_are_right(world, answer):
    assert says(checks.a_backend_of_your_own.Sharding, world, answer) == (
        "Solved. Every rank sent 48 bytes, and sharded momentum trains as one process does."
    )


WHOLE = """
class Sharding(Ring):
    def reduce_scatter(self, outputs, inputs, opts):
        whole = torch.cat(inputs[0])
        self.allreduce([whole], None)
        outputs[0].copy_(whole.tensor_split(self.size())[self.rank()])
        return Done(outputs)
"""


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (skeleton("class Sharding"), "Rank 0 holds [0.0, 1.0, 2.0, 3.0], expected [0.0, 10.0, 20.0, 30.0]."),
        (WHOLE, "The numbers are right. Rank 0 sent 96 bytes, and a reduce-scatter sends 48: 48 too many."),
        (BY_HOPS.replace("[part.clone() for part in inputs[0]]", "inputs[0]"), "Rank 0 has changed `inputs`"),
        (
            BY_HOPS.replace("copy_(parts[rank])", "copy_(parts[rank] / n)"),
            "Rank 0 holds [0.0, 2.5, 5.0, 7.5], expected",
        ),
        (BY_HOPS.replace("range(n - 1)", "range(n - 2)"), "Rank 0 holds ["),
        (BY_HOPS.replace("parts[rank])", "parts[(rank + 1) % n])"), "Rank 0 holds ["),
        (BY_HOPS.replace("parts[0])", "missing)"), "Rank 0 raised NameError: name 'missing' is not defined"),
        ("Sharding = Ring", "Rank 0 raised "),
    ],
    ids=["skeleton", "whole", "changed", "mean", "a step less", "another's", "error", "none"],
)
def test_reduce_scatters_that_are_wrong(world, answer, message):
    said = says(checks.a_backend_of_your_own.Sharding, world, answer)
    assert said.startswith(f"Not yet. {message}"), said


# ---------------------------------------------------------------- compressing

ADDS_IN_FLOAT32 = """
class Compressing(Ring):
    def allreduce(self, tensors, opts):
        rank, n = self.rank(), self.size()
        chunks = tensors[0].view(-1).tensor_split(n)
        incoming = torch.empty(len(chunks[0]), dtype=torch.bfloat16)
        for step in range(n - 1):
            mine = chunks[(rank - step - 1) % n]
            self.exchange(chunks[(rank - step) % n].bfloat16(), incoming[: len(mine)])
            mine += incoming[: len(mine)]
        chunks[(rank + 1) % n].copy_(chunks[(rank + 1) % n].bfloat16())
        for step in range(n - 1):
            mine = chunks[(rank - step) % n]
            self.exchange(chunks[(rank - step + 1) % n].bfloat16(), incoming[: len(mine)])
            mine.copy_(incoming[: len(mine)])
        return Done(tensors)
"""

IN_ANOTHER_STYLE = """
class Compressing(Ring):
    def exchange(self, outgoing, incoming):
        received = incoming.to(torch.bfloat16)
        super().exchange(outgoing.to(torch.bfloat16), received)
        incoming.copy_(received)
    def allreduce(self, tensors, opts):
        work = super().allreduce(tensors, opts)
        tensors[0].copy_(tensors[0].to(torch.bfloat16))
        return work
"""


@pytest.mark.parametrize("answer", [solution("Compressing"), ADDS_IN_FLOAT32, IN_ANOTHER_STYLE])
def test_compressions_that_are_right(world, answer):
    assert says(checks.a_backend_of_your_own.Compressing, world, answer) == (
        "Solved. All ranks hold the same sum, and each sent 48 bytes, half of the ring's."
    )


UNROUNDED = ADDS_IN_FLOAT32.replace("        chunks[(rank + 1) % n].copy_(chunks[(rank + 1) % n].bfloat16())\n", "")
RETURNS_THE_SMALL_ONE = """
class Compressing(Ring):
    def allreduce(self, tensors, opts):
        tensors[0].data = tensors[0].bfloat16()
        return super().allreduce(tensors, opts)
"""


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (skeleton("class Compressing"), "The numbers are right. Rank 0 sent 96 bytes, and the ring in bfloat16 sends"),
        (UNROUNDED, "Ranks 0 and 1 hold different bits in place "),
        (solution("Compressing").replace("copy_(compressed)", "copy_(compressed / 4)"), "Rank 0 holds "),
        (solution("Compressing").replace("bfloat16", "float16"), "Rank 0 holds "),
        (ADDS_IN_FLOAT32.replace("range(n - 1)", "range(n - 2)"), "Rank 0 holds "),
        (solution("Compressing").replace("        tensors[0].copy_(compressed)\n", ""), "Rank 0 holds "),
        (RETURNS_THE_SMALL_ONE, "Rank 0 holds torch.bfloat16, expected torch.float32."),
    ],
    ids=["skeleton", "unrounded", "mean", "float16", "a chunk dropped", "not copied back", "bfloat16"],
)
def test_compressions_that_are_wrong(world, answer, message):
    said = says(checks.a_backend_of_your_own.Compressing, world, answer)
    assert said.startswith(f"Not yet. {message}"), said

"""How the checks of RPC show the errors of other workers: in one line."""

from helpers.checks.exam import with_hint
from helpers.checks.rpc_judging import in_one_line


def test_errors_in_one_line():
    assert in_one_line("") == ""
    assert in_one_line("ValueError: no\nand more") == "ValueError: no"
    assert in_one_line(
        "RuntimeError: KeyError: 'On WorkerInfo(id=1, name=trainer):\\nKeyError(\\'k\\')\\nTraceback (most recent"
    ).endswith("on trainer")
    assert in_one_line("RuntimeError: E: On WorkerInfo(id=1, name=ps):\nE('x')\nTraceback\n") == "E('x') on ps"


def test_an_error_on_another_worker_keeps_its_text_before_the_hint():
    error = "TypeError: On WorkerInfo(id=1, name=ps):\nTypeError(\"'RRefProxy' object is not callable\")\nTraceback\n"
    said = in_one_line(with_hint(error))
    assert said == (
        "TypeError(\"'RRefProxy' object is not callable\") on ps. Name a method, such as `rpc_sync().forward(...)`."
    )

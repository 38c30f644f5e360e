"""How the checks of RPC show the errors of other workers: in one line."""

from helpers.checks.rpc_judging import in_one_line


def test_errors_in_one_line():
    assert in_one_line("") == ""
    assert in_one_line("ValueError: no\nand more") == "ValueError: no"
    assert in_one_line(
        "RuntimeError: KeyError: 'On WorkerInfo(id=1, name=trainer):\\nKeyError(\\'k\\')\\nTraceback (most recent"
    ).endswith("on trainer")
    assert in_one_line("RuntimeError: E: On WorkerInfo(id=1, name=ps):\nE('x')\nTraceback\n") == "E('x') on ps"

"""Grading holds the messages that ranks report against the bytes that their network carried."""

from collections import Counter

import pytest

from helpers.checks.exam import Outcome, Run, Wrong
from helpers.grade.outside import require_carried
from helpers.measure.traffic import Message


def outcome(*messages):
    return Outcome(
        [Run([Message(*message, posted=0, ended=ended) for *message, ended in messages], Counter())], "", None, ""
    )


def test_messages_that_the_network_did_not_carry_are_refused():
    outcomes = {0: outcome(("send", 1, 800, 1)), 1: outcome(("recv", 0, 800, 1), ("send", 0, 200, 1))}
    require_carried(outcomes, 800)
    outcomes[0] = outcome(("send", 1, 800, 1), ("recv", 1, 200, 1))
    with pytest.raises(Wrong, match="report messages of 1,000 bytes, and their network carried 999 bytes in all"):
        require_carried(outcomes, 999)


def test_what_was_not_received_need_not_have_been_carried():
    require_carried({0: outcome(("send", 1, 800, None)), 1: outcome(("recv", 0, 800, None))}, 0)
    require_carried({0: outcome(("send", 1, 8, 1)), 1: outcome(("recv", 0, 800, 1))}, 8)  # there was room for more

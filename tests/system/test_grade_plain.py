"""What the process that judges reads from a rank is plain data: no pickle runs code in it, or changes the course."""

import collections
import datetime
import functools
import io
import os
import pickle
import types

import numpy as np
import pytest
import torch
from ipyparallel.serialize import canning, deserialize_object, serialize_object

from helpers.checks import exam
from helpers.grade import plain, tampering
from helpers.measure.traffic import Message


class Reduced:
    """An object whose pickle calls a function, and then gives the result these attributes."""

    def __init__(self, function, *arguments, state=None):
        self._reduced = function, arguments, state

    def __reduce__(self):
        return self._reduced


def evil_storage():
    stored = io.BytesIO()
    torch.save(Reduced(os.system, "true"), stored, _use_new_zipfile_serialization=False)
    return stored.getvalue()


class Equal:
    """An object that says that it equals whatever is expected."""

    def __eq__(self, other):
        return True


class EqualTensor(Equal, torch.Tensor):
    """A tensor that does so."""


@pytest.fixture(autouse=True)
def nothing_refused():
    plain.refused.clear()


@pytest.mark.parametrize(
    "pickled",
    [
        pickle.dumps(Reduced(exec, "raise SystemExit")),
        pickle.dumps(Reduced(os.system, "true")),
        b"cbuiltins\ngetattr\n.",
        b"\x80\x04\x8c\x16helpers.checks.judging\x8c\x0eRun._make.__func__\x93.",
        b"\x80\x04\x8c\x0bhelpers.lab\x8c\x04main\x93.",
        b"\x80\x04\x8c\x16helpers.checks.judging\x8c\x02re\x93.",
        pickle.dumps(canning.Reference("1/0")),
        pickle.dumps(Equal()),
        pickle.dumps(torch.ones(1).as_subclass(EqualTensor)),
        pickle.dumps(canning.can(lambda: 1)),
        pickle.dumps(Reduced(torch.storage._load_from_bytes, evil_storage())),
        b"broken",
        b"",
    ],
)
def test_a_pickle_that_is_more_than_data_is_refused(pickled):
    assert isinstance(plain.loads(pickled), plain.Refused)
    assert len(plain.refused) == 1


def test_a_pickle_changes_no_class_of_the_course():
    # The class, then a state for it: (None, {"messages": ""})
    changes = b"\x80\x04chelpers.checks.exam\nRun\nN}\x8c\x08messages\x8c\x00s\x86b."
    assert isinstance(pickle.loads(changes), type)
    assert exam.Run.messages == ""
    exam.Run.messages = MESSAGES
    assert isinstance(plain.loads(changes), plain.Refused)
    assert exam.Run.messages is MESSAGES


MESSAGES = exam.Run.messages


@pytest.mark.parametrize(
    "value",
    [
        exam.Run([1, 2.5, None, "text", b"bytes", Message("send", 1, 8, 0.0)], collections.Counter(a=1)),
        {"a": {1, 2}, "b": (True, 1j), "c": range(3), "d": slice(1, 2)},
        [torch.float32, torch.Size([2, 3]), torch.device("cpu"), datetime.timedelta(seconds=1)],
        collections.OrderedDict(a=[np.float64(1.5), np.dtype("int32")]),
    ],
    ids=["run", "containers", "torch", "numpy"],
)
def test_plain_data_arrives_as_it_was_sent(value):
    assert plain.loads(pickle.dumps(value)) == value
    assert not plain.refused


@pytest.mark.parametrize(
    "tensor", [torch.arange(6.0).reshape(2, 3).T, torch.ones(0), torch.ones(2, dtype=torch.bfloat16)]
)
def test_tensors_arrive_as_they_were_sent(tensor):
    (sent,) = plain.loads(pickle.dumps([tensor]))
    assert torch.equal(sent, tensor) and sent.dtype == tensor.dtype
    parameter = plain.loads(pickle.dumps(torch.nn.Parameter(tensor)))
    assert isinstance(parameter, torch.nn.Parameter) and torch.equal(parameter, tensor)


def test_an_error_arrives_and_an_array_that_ipyparallel_sends(monkeypatch):
    assert isinstance(plain.loads(pickle.dumps(OSError(2, "gone"))), FileNotFoundError)
    buffers = serialize_object([np.arange(1000.0), b"x" * 2000, memoryview(b"y")])
    monkeypatch.setattr(pickle, "loads", plain.loads)
    (array, text, view), _ = deserialize_object(buffers)
    assert array.sum() == 499500 and text == b"x" * 2000 and bytes(view) == b"y"


# ---------------------------------------------------------------- whether the helpers are the course's


def a_module(**names):
    module = types.ModuleType("helpers.made_up")
    vars(module).update(names)
    return module


def kept(function):
    @functools.wraps(function)
    def wrapper():
        return function()

    return wrapper


class Right:
    limit = 1

    @property
    def answer(self):
        return 1

    @staticmethod
    def other():
        return 1


class Wrong(Right):
    @property
    def answer(self):
        return 2

    @staticmethod
    def other():
        return 2


def right():
    return 1


def wrong():
    return 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"call_answer": right}, {"call_answer": wrong}),
        ({"call_answer": right}, {}),
        ({"call_answer": right}, {"call_answer": Right}),
        ({"call_answer": kept(right)}, {"call_answer": kept(wrong)}),
        ({"_SECONDS": 1}, {"_SECONDS": 100}),
        ({"Counter": collections.Counter}, {"Counter": dict}),
    ],
)
def test_a_name_that_is_another_now_is_seen(before, after, monkeypatch):
    seen = []
    for names in (before, before, after):
        monkeypatch.setitem(tampering.sys.modules, "helpers.made_up", a_module(**names))
        seen.append(tampering.fingerprints(["helpers.made_up"]))
    assert tampering.changed(seen[0], seen[1]) == ""
    assert tampering.changed(seen[0], seen[2]) == f"helpers.made_up.{next(iter(before))}"


def test_a_code_that_pretends_to_come_from_the_same_line_is_seen(monkeypatch):
    monkeypatch.setitem(tampering.sys.modules, "helpers.made_up", a_module(right=right))
    before = tampering.fingerprints(["helpers.made_up"])
    monkeypatch.setattr(
        right,
        "__code__",
        wrong.__code__.replace(
            co_filename=right.__code__.co_filename,
            co_firstlineno=right.__code__.co_firstlineno,
            co_name="right",
        ),
    )
    assert tampering.changed(before, tampering.fingerprints(["helpers.made_up"])) == "helpers.made_up.right"


@pytest.mark.parametrize("attribute", ["answer", "other"])
def test_a_method_that_is_another_now_is_seen(attribute, monkeypatch):
    monkeypatch.setattr(Right, "__module__", "helpers.made_up")
    monkeypatch.setitem(tampering.sys.modules, "helpers.made_up", a_module(Right=Right))
    before = tampering.fingerprints(["helpers.made_up"])
    monkeypatch.setattr(Right, attribute, vars(Wrong)[attribute])
    after = tampering.fingerprints(["helpers.made_up"])
    assert tampering.changed(before, after) == f"helpers.made_up.Right.{attribute}"


def test_a_module_that_is_missing_is_a_change():
    before = tampering.fingerprints(["helpers.grade.tampering"])
    assert tampering.changed(before, {}).startswith("helpers.grade.tampering.")


def test_what_nobody_has_changed_has_the_same_fingerprint():
    assert tampering.changed(tampering.fingerprints(), tampering.fingerprints()) == ""

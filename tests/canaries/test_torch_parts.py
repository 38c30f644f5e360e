"""Every name of torch that is private or replaced is still there."""

import importlib
import inspect
import re
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist
from answers import code_cells
from lesson_files import NOTEBOOKS
from torch.distributed import distributed_c10d
from torch.distributed.rpc import api, rref_proxy

from helpers import script, tap, torch_parts
from helpers.probe import arguments


def test_every_name_that_is_taken_from_torch_is_there():
    """The torch that is installed lacks a private name that helpers/torch_parts.py uses."""
    for name in torch_parts.__all__:
        assert hasattr(torch_parts, name)
    assert isinstance(torch.futures.Future(), torch_parts.Future)
    assert callable(torch_parts.RRef.to_here)
    assert hasattr(api, "_get_current_rpc_agent") and hasattr(api, "_to_worker_info")
    assert isinstance(api._all_gather_sequence_id, dict) and isinstance(api._all_gather_sequence_id_to_states, dict)
    assert hasattr(api, "_all_gather_dict_lock")
    assert "timeout: datetime.timedelta" in api._delete_all_user_and_unforked_owner_rrefs.__doc__
    assert "_delete_all_user_and_unforked_owner_rrefs()" in inspect.getsource(api.shutdown)
    assert hasattr(dist.Work, "_source_rank")


def test_operations_of_a_process_group_pass_through_methods_that_the_tap_wraps():
    """helpers/tap.py no longer finds the methods of ProcessGroup that return a Work, or a collective of them."""
    methods = vars(dist.ProcessGroup)
    returned = [name for name, method in methods.items() if "-> c10d::Work" in (method.__doc__ or "")]
    assert {"send", "recv", "recv_anysource", "_end_coalescing"} < set(returned)
    for collective, names in tap.METHODS_OF_COLLECTIVES.items():
        assert set(names) & set(returned), collective
    assert "monitored_barrier" in methods


def test_the_tap_knows_the_name_of_every_collective():
    """ProcessGroup has a new method that returns a Work: give it a name in helpers/tap.py."""
    methods = vars(dist.ProcessGroup)
    returned = {name for name, method in methods.items() if "-> c10d::Work" in (method.__doc__ or "")}
    assert returned <= {*tap._COLLECTIVES, *tap._MESSAGES, tap._ENDS_A_BATCH, tap._CHANGES_MEMBERS}


def test_waits_rpcs_and_groups_pass_through_what_the_tap_wraps():
    """A wait, an RPC or the making of a group no longer passes through what helpers/tap.py wraps."""
    for owner, name in ((dist.Work, "wait"), (torch_parts.Future, "wait"), (torch_parts.RRef, "to_here")):
        assert name in vars(owner)
    assert list(inspect.signature(api._invoke_rpc).parameters)[:5] == ["to", "func", "rpc_type", "args", "kwargs"]
    assert {"to", "func", "args", "kwargs"} < set(inspect.signature(api.remote).parameters)
    for name in tap._INVOKE_REMOTE:
        assert f"{name}(" in inspect.getsource(api.remote)
    assert list(inspect.signature(rref_proxy._invoke_rpc).parameters)[:3] == ["rref", "rpc_api", "func_name"]
    names = ["group_size", "group_rank", "global_ranks_in_group", "backend", "store", "group_name"]
    assert list(inspect.signature(distributed_c10d._new_process_group_helper).parameters)[:6] == names
    for maker in (distributed_c10d.init_process_group, distributed_c10d._new_group_with_tag):
        assert "_new_process_group_helper(" in inspect.getsource(maker)


def test_options_tell_whether_a_call_waits_by_itself():
    """The options of a collective have lost asyncOp: helpers/probe/handles.py leaves out the handles of these calls."""
    assert hasattr(dist.AllreduceOptions(), "asyncOp")


def test_frames_of_torch_have_the_names_that_arguments_are_read_from():
    """A function of torch names its parameters differently, or has moved: helpers/probe/arguments.py reads them."""
    assert {"tensor", "op", "group"} < set(inspect.signature(dist.all_reduce).parameters)
    assert {"src", "group_src", "tag"} < set(inspect.signature(dist.recv).parameters)
    assert {"to", "func", "args"} < set(inspect.signature(api.rpc_sync).parameters)
    assert list(inspect.signature(torch_parts.SERVE).parameters) == ["python_udf"]
    assert list(inspect.signature(torch.futures.wait_all).parameters) == ["futures"]
    assert inspect.unwrap(dist.all_reduce).__code__.co_filename in arguments._DESCRIBE


def test_options_of_collectives_have_an_operator_and_a_root():
    """The options of a collective have changed: helpers/probe/recorder.py reads operator and root from them."""
    for name in ("AllreduceOptions", "ReduceOptions", "ReduceScatterOptions"):
        assert vars(dist)[name]().reduceOp.op.name == "SUM"
    for name in ("BroadcastOptions", "GatherOptions", "ReduceOptions", "ScatterOptions"):
        assert hasattr(vars(dist)[name](), "rootRank")


def test_the_flight_recorder_tells_what_the_history_is_made_of():
    """An entry of the flight recorder has changed: helpers/probe/recorder.py makes world.history() of them."""
    before = set(sys.modules)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        dist.all_reduce(torch.ones(3))
        entry = torch_parts.flight_records()[-1]
    finally:
        dist.destroy_process_group()
    assert entry["process_group"] == ("0", "default_pg") and entry["profiling_name"] == "gloo:all_reduce"
    assert (entry["input_sizes"], entry["input_dtypes"], entry["is_p2p"]) == ([[3]], ["Float"], False)
    assert int(entry["thread_id"]) == threading.get_ident()
    assert abs(entry["time_created_ns"] - time.time_ns()) < 60e9
    assert __file__ in [frame["filename"] for frame in entry["frames"]]
    assert entry["record_id"] >= 0 and entry["collective_seq_id"] == 1
    assert not any(name.startswith("torch._inductor") for name in set(sys.modules) - before)


def test_scripts_of_roles_can_meet():
    """RPC has lost the private function with which scripts of helpers/script.py wait for each
    other.
    """
    name = script._RPC_BARRIER.partition("(")[0].rpartition(".")[2]
    assert callable(getattr(api, name))


PRIVATE = re.compile(r"^ *from (torch[\w.]*) import (\w+)", re.MULTILINE)
OF_LESSONS = sorted(
    {
        (path.stem, *names)
        for path in NOTEBOOKS
        for source in code_cells(path.name)
        for names in PRIVATE.findall(source)
        if re.search(r"\b_[A-Za-z]", ".".join(names))
    }
)


@pytest.mark.parametrize(("lesson", "module", "name"), OF_LESSONS)
def test_private_names_that_lessons_import(lesson, module, name):
    """Torch has moved a private name, or a name of a private module, that a lesson imports."""
    assert hasattr(importlib.import_module(module), name)

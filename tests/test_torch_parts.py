"""What of torch is private or replaced is still there: this fails, and says what, when a release has moved it."""

import inspect

import torch
import torch.distributed as dist
from torch.distributed.rpc import api

from helpers import script
from helpers.measure import torch_parts, traffic


def test_every_name_that_is_taken_from_torch_is_there():
    for name in torch_parts.__all__:
        assert hasattr(torch_parts, name)
    assert isinstance(torch.futures.Future(), torch_parts.Future)
    assert callable(torch_parts.RRef.to_here)
    assert hasattr(api, "_get_current_rpc_agent") and hasattr(api, "_to_worker_info")
    assert hasattr(dist.Work, "_source_rank")


def test_calls_pass_through_what_the_recorder_of_rpc_replaces():
    assert list(inspect.signature(api._invoke_rpc).parameters)[:5] == ["to", "func", "rpc_type", "args", "kwargs"]
    for name in ("PythonUDF", "_invoke_remote_python_udf", "_invoke_remote_builtin", "_invoke_remote_torchscript"):
        assert f"{name}(" in inspect.getsource(api)


def test_collectives_and_messages_pass_through_methods_that_can_be_replaced():
    for name in ("send", "recv", "recv_anysource"):
        assert name in vars(dist.ProcessGroup)
    for collective, methods in traffic.METHODS_OF_COLLECTIVES.items():
        assert any(method in vars(dist.ProcessGroup) for method in methods), collective


def test_scripts_of_roles_can_meet():
    name = script._MEETING.partition("(")[0].rpartition(".")[2]
    assert callable(getattr(api, name))

"""Observe what an answer does with RPC: its calls, and the values that it fetches by `to_here`."""

import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

from helpers import tap
from helpers.checks.exam import AnswerError, answer, errors_of_answer, missing, with_hint
from helpers.checks.learner import learners_module
from helpers.measure import calls
from helpers.measure.calls import Call
from helpers.torch_parts import RRef, forget_gathers, seconds_for_rrefs

SECONDS_AT_MOST, _TIMES_AT_MOST = 0.5, 6  # the duration of a function without a wait, and how often it is sampled
_SECONDS_TO_END = 5
SECONDS_FOR_RREFS = 1  # shorter than the other ranks wait for this rank
NO_RPC = "RuntimeError: RPC has not been initialized: run the setup cell."
# torch reports an error of another worker as this line, followed by the text and the stack of the error.
_REMOTE = re.compile(r"On WorkerInfo\(id=\d+, name=(\S+)\):(?:\\n|\s)*(.+?)(?:\\nTraceback|$)", re.MULTILINE)
_ON_NODE = re.compile(r"Error on Node \d+:\s*$")  # the error of a function with async_execution follows on a new line

_ended_by = []  # the checks that ended RPC in this process


def answer_with_rpc(function: str, arguments: Sequence) -> tuple[object, list[Call]]:
    """Call the learner's function on this rank; return its result, and the RPCs that it made meanwhile.

    torch makes no call for `to_here`, so the value that it fetches counts as a call of kind "fetch", with the owner of
    the RRef as its callee. Raises `AnswerError` as `exam.answer` does, with a text of one line, and when RPC has not
    been initialised.
    """
    fetched = []

    def note(event):
        rref = event.handle
        if event.end and isinstance(rref, RRef) and not rref.is_owner():
            me = rpc.get_worker_info().name
            size = calls.tensor_bytes(event.result)
            fetched.append(Call("fetch", me, rref.owner_name(), "to_here", 0, size, 0.0))

    with one_line_errors(), calls.recorded() as made, tap.subscribed(tap.Wait, end=note):
        result = answer(function, arguments)
    return result, made + fetched


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn an error inside the block, which runs the learner's code, into an `AnswerError` of one line.

    For an error on another worker, the line names the error and the worker.
    """
    try:
        with errors_of_answer():
            yield
    except AnswerError as error:
        text = in_one_line(str(error))
        if text.endswith("Boolean value of Tensor with more than one value is ambiguous"):
            text += ". Does an RPC get its arguments in a tuple?"
        raise AnswerError(text) from error


def rpc_runs() -> bool:
    """Return whether RPC runs on this rank: it called `init_rpc`, and has not left RPC since."""
    try:
        rpc.get_worker_info()
    except RuntimeError:
        return False
    return True


def start_rpc(name: str) -> None:
    """Start RPC on this rank under a name of the notebook, over TCP, unless it is running."""
    if rpc_runs():
        return
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=10, _transports=["uv"], _channels=["basic"])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's warnings about itself
        rpc.init_rpc(name, rank=rank, world_size=size, rpc_backend_options=options)


def end_rpc(check: str) -> bool:
    """End RPC on this rank if it is running; `check` is the check that asks for it.

    All ranks call this, and can start RPC again afterwards. It ends RPC even if the workers do not end it together, and
    then returns False.
    """
    _ended_by.append(check)
    together = True
    if rpc_runs():
        try:
            with seconds_for_rrefs(SECONDS_FOR_RREFS):
                rpc.shutdown(timeout=_SECONDS_TO_END)
        except RuntimeError:
            together = False
    forget_gathers()
    return together


def require_first_rpc(remedy: str) -> None:
    """Raise `AnswerError` if a check ended the first RPC session of this process, because RRefs work only then."""
    if _ended_by:
        raise AnswerError(
            f"RuntimeError: the check of `{_ended_by[-1]}` has ended the first RPC session of this process, and RRefs "
            f"work only in the first session. {remedy}"
        )


def require_rpc(name: str) -> None:
    """Raise `AnswerError` unless RPC runs on this rank, and the cell that defines the learner's function has run."""
    if not rpc_runs():
        raise AnswerError(NO_RPC)
    if name not in vars(learners_module()):
        raise AnswerError(missing(name))


def error_in_one_line(error: BaseException) -> str:
    """Return the type and the message of an error in one line; for an error on another worker, also name the worker."""
    return in_one_line(f"{type(error).__name__}: {error}")


def in_one_line(error: str) -> str:
    """Return the text of an error in one line; for an error on another worker, also name the worker."""
    if remote := _REMOTE.search(error):
        return with_hint(f"{remote[2].strip()} on {remote[1]}")
    first, *others = [line for line in error.split("\n") if line.strip()] or [error]
    return " ".join([first.rstrip(), *others[:1]]) if _ON_NODE.search(first) else first


@contextmanager
def autograd_context() -> Iterator[int]:
    """Open a context of distributed autograd. Raises `AnswerError` if the learner's code has left a context open."""
    context = dist_autograd.context()
    try:
        number = context.__enter__()
    except RuntimeError as error:
        raise AnswerError(with_hint(f"RuntimeError: {error}")) from error
    try:
        yield number
    finally:
        context.__exit__(None, None, None)


def waits_inside_cells(seconds):
    """Return whether a server thread of this process stays in one call to a cell's function, within this many seconds.

    Calls that are under way at the start may wait, because an earlier answer may have left them behind. A thread that
    the answer itself started may wait, too.
    """
    seen = {}  # by the frame of each call under way: the time of its first sample, and the number of samples
    left_behind = _calls_of_cells()
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        calls = [call for call in _calls_of_cells() if call not in left_behind]
        seen = {call: (seen[call][0], seen[call][1] + 1) if call in seen else (now, 1) for call in calls}
        # The number of samples counts, too: on a busy machine a short call may last long, but few samples see it.
        if any(now - since > SECONDS_AT_MOST and times > _TIMES_AT_MOST for since, times in seen.values()):
            return True
        time.sleep(0.01)
    return False


def _calls_of_cells():
    """Return the first frame of a cell's function on each server thread that runs such a function."""
    own = {thread.ident for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}
    frames = [frame for thread, frame in sys._current_frames().items() if thread not in own]
    return [call for frame in frames if (call := _call_of_cell(frame))]


def _call_of_cell(frame):
    call = None
    while frame is not None:
        if "ipykernel_" in frame.f_code.co_filename:
            call = frame
        frame = frame.f_back
    return call

"""Checks of 22_several_trainers: a step in turn, and classes on the server that two threads use at once."""

import os
import threading
import time

from helpers.checks.judging import RESTART, Run, Verdict, Wrong, call_answer, judge, missing
from helpers.checks.rpc_judging import NO_RPC, in_one_line, rpc_runs

_SECONDS = 0.2  # that a slow step takes, so that two at once meet for certain
_PATIENCE = 5  # seconds for something that takes less than one


def my_step_in_turn(world) -> Verdict:
    """Check `my_step_in_turn(context, parameter)`: a step of SGD on the owner, which waits for its turn."""

    def check(runs):
        if runs[0].result:
            raise Wrong(runs[0].result)
        return "The step waits for its turn, and loses nothing that came before."

    return judge(world, "my_step_in_turn", check, _run_my_step_in_turn)


def SharedOptimizer(world) -> Verdict:
    """Check `SharedOptimizer(parameters, optimizer)`: a step takes the gradients of its own context alone."""

    def check(runs):
        found = runs[0].result
        if found["hung"]:
            raise Wrong(f"A step has not ended: is the lock let go, also after an error? {RESTART}")
        if found["steps"] != 2:
            raise Wrong(f"For two calls of `step` the optimizer made {found['steps']} steps, and the target is 2.")
        if found["together"]:
            raise Wrong("Two steps of the optimizer were under way at the same time.")
        if found["replaced"]:
            raise Wrong("While the optimizer made one trainer's step, another one's gradients were put in their place.")
        for number, (mine, true) in enumerate(zip(found["values"], found["true"], strict=True)):
            if mine != true:
                old = " It had no gradient in the second context." if number == 1 and mine == 2 * true else ""
                raise Wrong(f"After two steps parameter {number} is {mine:g}, and the target is {true:g}.{old}")
        return "Each step took the gradients of its own context, and no two were under way at the same time."

    return judge(world, "SharedOptimizer", check, _run_shared_optimizer)


def Bounded(world) -> Verdict:
    """Check `Bounded(values, limit)`: it refuses gradients that are too old, also when two come at the same time."""

    def check(runs):
        found = runs[-1].result
        if found["wrong"]:
            raise Wrong(found["wrong"])
        if found["hung"]:
            raise Wrong(f"An update has not ended: is the lock let go? {RESTART}")
        if found["accepted"] != 1:
            accepted = "both were" if found["accepted"] == 2 else "neither was"
            raise Wrong(
                "With a limit of 0, two updates came at the same time with gradients of the same version, and "
                f"{accepted} made. The target is one: the second one is too old when the first one is made."
            )
        if found["value"] != -1:
            raise Wrong(f"After one update by 1 and one that was refused a 0 is {found['value']:g}, and should be -1.")
        if found["torn"]:
            value, version = found["torn"]
            raise Wrong(
                f"`read` returned {value:g} as the value of version {version}, while an update was under way. "
                f"The target is {-version}."
            )
        return "What is too old is refused, one update at a time, and what `read` returns belongs together."

    return judge(world, "Bounded", check, _run_bounded)


def _error(function, arguments):
    run = call_answer(function, arguments)
    return run._replace(error=in_one_line(run.error))


# ---------------------------------------------------------------- my_step_in_turn


def fault_of_step(step) -> str:
    """On a trainer: have the server take a step, and return what is wrong with it, in words; "" when nothing is.

    The loss is the sum of all values, so each gradient is 1.
    """
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc

    parameter = rpc.rpc_sync("server", new_parameter)
    with dist_autograd.context() as context:
        loss = rpc.rpc_sync("server", sum_of, (parameter,))
        dist_autograd.backward(context, [loss])
        early, kept, value = rpc.rpc_sync("server", taken, (step, context, parameter))
    if kept:
        return "The step still holds `turn`, expected it to let go of the lock."
    if value == 10:
        return "The step has subtracted nothing: the value is 10, expected 9."
    if early:
        return "The step changed the values while another thread held `turn`, expected it to wait for its turn."
    if value == -1:
        return "The step read the values before its turn, and has overwritten what came meanwhile: -1, expected 9."
    if value != 9:
        return f"The value is {value:g}, expected 9: the 10 that came meanwhile, less the gradient of 1."
    return ""


def new_parameter():
    """Make a parameter of one 0; a check sends this to the server."""
    import torch
    import torch.distributed.rpc as rpc

    return rpc.RRef(torch.zeros(1, requires_grad=True))


def sum_of(parameter):
    """Return the sum of a parameter; a check sends this to the server."""
    return parameter.local_value().sum()


def taken(step, context, parameter):
    """On the server: hold `turn`, let a step begin, add 10 to the values, and let go.

    Returns whether the values had changed before, whether the step kept `turn`, and the value in the end.
    """
    import __main__

    turn = vars(__main__)["turn"]
    values = parameter.local_value()
    errors = []

    def begin():
        try:
            step(context, parameter)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=begin, daemon=True)
    with turn:
        thread.start()
        thread.join(0.5)  # in vain, if it waits for its turn
        early = values[0].item() != 0
        values.detach().add_(10)
    thread.join(_PATIENCE)
    kept = turn.locked()
    if kept:
        turn.release()  # for those who come later
    if errors:
        raise errors[0]
    return early, kept, values[0].item()


def _run_my_step_in_turn():
    import __main__

    if not rpc_runs():
        return Run(None, [], NO_RPC)
    if "my_step_in_turn" not in vars(__main__):
        return Run(None, [], missing("my_step_in_turn"))
    if os.environ["RANK"] != "0":
        return Run(None, [], "")
    try:
        return Run(fault_of_step(vars(__main__)["my_step_in_turn"]), [], "")
    except Exception as error:
        return Run(None, [], in_one_line(f"{type(error).__name__}: {error}"))


# ---------------------------------------------------------------- shared_optimizer


def _run_shared_optimizer():
    import torch.distributed.rpc as rpc

    import __main__

    if not rpc_runs():
        return Run(None, [], NO_RPC)
    if os.environ["RANK"] != "0":
        return Run(None, [], "" if hasattr(__main__, "SharedOptimizer") else missing("SharedOptimizer"))
    owner = rpc.remote("server", new_owner)
    if error := rpc.rpc_sync("server", begun, (owner,)):
        return Run(None, [], error)
    errors, ended = [], []
    first_has_begun = threading.Event()

    def step(scale, with_second):
        try:
            errors.append(_step(owner, scale, with_second, first_has_begun))
            ended.append(scale)
        except RuntimeError as error:
            errors.append("" if "timeout" in str(error) else f"RuntimeError: {in_one_line(str(error))}")

    threads = [threading.Thread(target=step, args=arguments, daemon=True) for arguments in ((1.0, True), (2.0, False))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * _PATIENCE)
    if any(errors):
        return Run(None, [], next(filter(None, errors)))
    found = rpc.rpc_sync("server", found_by, (owner,))
    found["hung"] = len(ended) < 2
    found["true"] = [-3.0, -1.0]
    return Run(found, [], "")


def _step(owner, scale, with_second, first_has_begun):
    """Have the owner make a step, and return its error; the second step comes while the first one is under way."""
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc

    with dist_autograd.context() as context:
        loss = rpc.rpc_sync("server", loss_of, (owner, scale, with_second))
        dist_autograd.backward(context, [loss])
        if with_second:
            call = rpc.rpc_async("server", step_of, (owner, context), timeout=_PATIENCE)
            time.sleep(_SECONDS / 2)
            first_has_begun.set()
            return call.wait()
        first_has_begun.wait(_PATIENCE)
        return rpc.rpc_sync("server", step_of, (owner, context), timeout=_PATIENCE)


class Owner:
    """On the server: two parameters, the learner's object, and an optimizer that notes what happens to it."""

    def __init__(self):
        import torch

        self.parameters = [torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)]
        self.optimizer = _watched(self.parameters)
        run = _error("SharedOptimizer", [self.parameters, self.optimizer])
        self.error, self.mine = run.error, run.result


def _watched(parameters):
    import torch

    class Watched(torch.optim.SGD):
        steps = 0
        under_way = 0
        together = False
        replaced = False

        def step(self):
            self.steps += 1
            self.under_way += 1
            self.together |= self.under_way > 1
            before = [parameter.grad for parameter in parameters]
            time.sleep(_SECONDS)
            now = [parameter.grad for parameter in parameters]
            self.replaced |= any(mine is not other for mine, other in zip(before, now, strict=True))
            super().step()
            self.under_way -= 1

    return Watched(parameters, lr=1.0)


def new_owner():
    """Make an owner; a check sends this to the server."""
    return Owner()


def begun(owner):
    """Return the error with which the learner's object was not made, or an empty string."""
    return owner.local_value().error


def loss_of(owner, scale, with_second):
    """Return a loss whose gradients are `scale` for the first parameter, and for the second one that or none."""
    first, second = owner.local_value().parameters
    return scale * (first.sum() + second.sum() if with_second else first.sum())


def step_of(owner, context):
    """Have the learner's object make a step, and return its error or an empty string."""
    try:
        owner.local_value().mine.step(context)
    except Exception as error:
        return in_one_line(f"{type(error).__name__}: {error}")
    return ""


def found_by(owner):
    """Return what the optimizer has noted, and the values of the parameters."""
    owner = owner.local_value()
    noted = {name: getattr(owner.optimizer, name) for name in ("steps", "together", "replaced")}
    return {**noted, "values": [parameter.item() for parameter in owner.parameters]}


# ---------------------------------------------------------------- bounded


def _run_bounded():
    import torch.distributed.rpc as rpc

    import __main__

    if not rpc_runs():
        return Run(None, [], NO_RPC)
    if rpc.get_worker_info().name != "server":
        return Run(None, [], "" if hasattr(__main__, "Bounded") else missing("Bounded"))
    run = _error("Bounded", [_slow_zeros(), 1])
    if run.error:
        return run
    vars(__main__)["use of Bounded"] = _use
    run = _error("use of Bounded", [run.result])
    if run.error or run.result["wrong"]:
        return run
    new = _error("Bounded", [_slow_zeros(), 0])
    return run._replace(result=run.result | _at_once(new.result))


def _use(bounded):
    """Return what is wrong when one thread alone uses an object with a limit of 1."""
    import torch

    one = torch.ones(1)
    pair = bounded.read()
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], torch.Tensor):
        return {"wrong": f"`read` returned a {type(pair).__name__}, and the target is a pair: values and version."}
    kept = pair[0]
    # (the version to which the gradient belongs, whether it is made, the value and the version afterwards)
    for version, made, value, now in ((0, True, -1, 1), (0, True, -2, 2), (0, False, -2, 2), (2, True, -3, 3)):
        answer = bounded.update(one, version)
        behind = f"With a limit of 1, an update that was {_updates(now - made - version)} old"
        if bool(answer) != made:
            return {"wrong": f"{behind} returned {answer}, and the target is {made}."}
        mine, version_now = bounded.read()
        if mine.item() != value:
            return {"wrong": f"{behind} left {mine.item():g}, and the target is {value}."}
        if version_now != now:
            return {"wrong": f"{behind} left version {version_now}, and the target is {now}."}
    if kept.item() != 0:
        return {"wrong": "What `read` has returned changes with later updates, and the target is a copy."}
    return {"wrong": ""}


def _at_once(bounded):
    """Have two threads update an object with a limit of 0 at the same time, while a third one reads."""
    import torch

    answers, torn = [], []

    def update():
        _slow.here = True
        answers.append(bounded.update(torch.ones(1), 0))

    threads = [threading.Thread(target=update, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    reader = threading.Thread(target=_read_until, args=(bounded, threads, torn), daemon=True)
    reader.start()
    for thread in [*threads, reader]:
        thread.join(_PATIENCE)
    if any(thread.is_alive() for thread in [*threads, reader]):
        return {"hung": True}
    value = bounded.read()[0].item()
    return {"hung": False, "accepted": sum(map(bool, answers)), "value": value, "torn": torn[0] if torn else None}


def _read_until(bounded, threads, torn):
    """Read until the threads have ended, and note pairs of which the value is not that of the version."""
    while any(thread.is_alive() for thread in threads):
        values, version = bounded.read()
        if values.item() != -version:
            torn.append((values.item(), version))
        time.sleep(0.001)


_slow = threading.local()


def _slow_zeros():
    """Return a tensor of one 0; threads that have said so take long for whatever they compute with it."""
    import torch

    class Slow(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), options=None):
            result = super().__torch_function__(function, types, arguments, options or {})
            if getattr(_slow, "here", False):
                time.sleep(_SECONDS)
            return result

    return torch.zeros(1).as_subclass(Slow)


def _updates(number):
    return "one update" if number == 1 else f"{number} updates"

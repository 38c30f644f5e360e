"""Checks of 52_find_the_fault: what is wrong with a diagnosis, and whether a repair gives the results of one process.

The faults of the broken trainings are in `helpers.faults`; `helpers.faulty` runs them.
"""

import math
import time

from helpers import faulty
from helpers.checks.judging import RESTART, TIMEOUT_ERROR, Verdict, Wrong
from helpers.checks.learner import learners_module
from helpers.faults import CAUSES, FAULTS

_SECONDS_TO_END = 15  # of a repaired training
_SECONDS_TO_LOOK = 3  # before a training that has not ended is asked where its ranks part
_SECONDS_BETWEEN_LOOKS = 0.1
_TOLERANCE = 1e-9
_proved = set()  # repaired scripts, by the number of ranks that they were run on

# ---------------------------------------------------------------- diagnoses


def diagnosis(world, case, ranks, line, cause) -> Verdict:
    """Check one diagnosis: the ranks at fault, the number of the line that has to change, and the cause's name."""
    wrong = _wrong_with(world, case, (ranks, line, cause))
    return Verdict(not wrong, " ".join(wrong) or _thread_of(case))


def my_diagnoses(world) -> Verdict:
    """Check `my_diagnoses`: for the number of each case a tuple of the ranks at fault, a line and a cause's name."""
    return _check_each(world, "my_diagnoses", _wrong_with, _thread_of)


def _thread_of(case):
    return f"A public thread on this fault: {FAULTS[case.name].thread}"


def _wrong_with(world, case, answer):
    """Return what is wrong with a diagnosis: sentences, none when it is right."""
    try:
        ranks, line, cause = answer
        ranks = sorted(ranks)
    except (TypeError, ValueError):
        return [
            f"{answer!r} is not a diagnosis, expected three parts: a list of ranks, the number of a line and a cause."
        ]
    fault = FAULTS[case.name]
    return [
        *_wrong_with_ranks(ranks, fault.ranks(case.chosen, world.size), world.size),
        *_wrong_with_line(line, [case.line(text) for text in fault.lines], case.script.splitlines()),
        *_wrong_with_cause(cause, fault.cause),
    ]


def _wrong_with_ranks(ranks, right, size):
    if ranks in right:
        return
    if strangers := [rank for rank in ranks if rank not in range(size)]:
        yield f"There is no rank {strangers[0]!r}, expected ranks from 0 to {size - 1}."
    elif innocent := [rank for rank in ranks if not any(rank in answer for answer in right)]:
        yield f"Rank {innocent[0]} is not at fault, expected only ranks that are."
    else:
        yield (
            f"Ranks {ranks} are at fault, but other ranks are too."
            if ranks
            else "The diagnosis names no rank, expected at least one."
        )


def _wrong_with_line(line, right, lines):
    if line in right:
        return
    if line not in range(1, len(lines) + 1):
        yield f"There is no line {line!r}, expected a line from 1 to {len(lines)}."
    elif lines[line - 1].strip():
        yield f"Line {line}, `{lines[line - 1].strip()}`, can stay as it is, and nothing is missing next to it."
    else:
        yield f"Line {line} is empty, expected a line with code."


def _wrong_with_cause(cause, right):
    if cause == right:
        return
    if cause not in CAUSES:
        yield f"{cause!r} is not in the list of causes."
    else:
        yield f"The cause is not {cause!r}: if it were, {CAUSES[cause][1]}."


# ---------------------------------------------------------------- repairs


def repair(world, case, *changes) -> Verdict:
    """Check one repair, pairs of a text of the script and the text that takes its place, on fresh ranks."""
    wrong = _wrong_with_repair(world, case, list(changes))
    _free(world)
    return Verdict(not wrong, " ".join(wrong) or _proof_of(case))


def my_repairs(world) -> Verdict:
    """Check `my_repairs`: for the number of each case a pair of an old text and a new one, or a list of such pairs.

    Each repaired script runs on fresh ranks, and has to give the results of one process.
    """
    return _check_each(world, "my_repairs", _wrong_with_repair, _proof_of)


def _proof_of(case):
    return "All ranks have the results of one process."


def _wrong_with_repair(world, case, changes):
    """Return what is wrong with a repair: sentences, none when it gives the expected results."""
    try:
        repaired = _changed(case.script, [changes] if isinstance(changes, tuple) else changes)
        for text in [*FAULTS[case.name].keeps, _result_of(case.script)]:
            if text not in repaired:
                raise Wrong(
                    f"The repaired script lacks `{text}`, expected it to stay: without it, the training is different."
                )
        if (world.size, repaired) not in _proved:
            _require_right_numbers(world, case, repaired)
            _proved.add((world.size, repaired))
    except Wrong as wrong:
        return [str(wrong)]
    return []


def _changed(script, changes):
    for change in changes:
        try:
            old, new = change
            count = script.count(old)
        except (TypeError, ValueError):
            raise Wrong(f"{change!r} is not a change, expected a pair: an old text and a new text.") from None
        if count != 1 or not old:
            raise Wrong(f"The script has the text {old!r} {count} times, expected once.")
        script = script.replace(old, new)
    return script


def _result_of(script):
    (line,) = [line for line in script.splitlines() if line.startswith("result = ")]
    return line


def _require_right_numbers(world, case, repaired):
    answer = faulty.start(world, repaired)
    _require_an_end(world, answer)
    for rank, result in enumerate(world.view["result"]):
        if case.is_silent(rank) and result == []:
            continue
        if len(result) != len(case.right):
            raise Wrong(f"On rank {rank} `result` has {len(result)} numbers, expected {len(case.right)}.")
        for place, (number, right) in enumerate(zip(result, case.right, strict=True)):
            if not math.isclose(number, right, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
                raise Wrong(
                    f"On rank {rank} `result[{place}]` is {number:.6g}, expected {right:.6g}, as in one process."
                )


def _require_an_end(world, answer):
    """Wait until all ranks end without an error; raise `Wrong` as soon as it is clear that they will not."""
    began = time.monotonic()
    while True:
        ready = answer.wait(_SECONDS_BETWEEN_LOOKS)
        waited = time.monotonic() - began
        errors = {rank: error for rank, error in faulty.errors(answer).items() if not TIMEOUT_ERROR.search(error)}
        if errors or ready:
            for rank, error in (errors or faulty.errors(answer)).items():
                raise Wrong(f"Expected no error, but rank {rank} raised {error}")
            return
        if waited > _SECONDS_TO_LOOK and (parted := world.history().differences):
            raise Wrong(f"The ranks hang, expected all of them to end. Their calls differ here:\n{parted[0]!r}")
        if waited > _SECONDS_TO_END:
            raise Wrong(f"The ranks did not end within {_SECONDS_TO_END} s, expected all of them to end.")


# ---------------------------------------------------------------- both checks


def _check_each(world, name, wrong_with, praise):
    """Return the verdict on an answer for each of the cases, with a sentence for each case that is not open."""
    try:
        cases = {number: case for number, case in faulty.dealt().items() if number > 0}
        if not cases:
            raise Wrong("There are no cases: run the cell that calls `faulty.deal`, then this check.")
        answers = _answers(world, name)
        if strangers := [number for number in answers if number not in cases]:
            raise Wrong(f"There is no case {strangers[0]!r}, expected cases from 1 to {len(cases)}.")
    except Wrong as wrong:
        return Verdict(False, str(wrong))
    before = world.pids
    said, still_open, wrong = [], [], {}
    for number, case in cases.items():
        if answers.get(number) in (None, ..., ()):
            still_open.append(number)
            continue
        wrong[number] = wrong_with(world, case, answers[number])
        said.append(f"Case {number}: {' '.join(wrong[number]) or 'right. ' + praise(case)}")
    if world.pids != before:
        _free(world)
        world.view.push({name: answers})  # fresh ranks have lost it
    right = [number for number in wrong if not wrong[number]]
    said.insert(0, f"{len(right)} of {len(cases)} are right.")
    if still_open:
        said.append(f"Still open: {', '.join(map(str, still_open))}.")
    return Verdict(len(right) == len(cases), "\n".join(said))


def _free(world):
    """Restart the ranks if some of them hang or died."""
    if any(state.state != "idle" for state in world.where()):
        world.restart()


def _answers(world, name):
    """Return the value of the learner's variable of this name."""
    for state in world.where():
        if state.state != "idle":
            raise Wrong(f"Rank {state.rank} is {state.state}. {RESTART}")
    answers = world.view.apply_sync(_of_this_rank, name)[0]
    if answers is None:
        raise Wrong(f"The ranks have no `{name}`: run the cell that defines it, then this check.")
    if not isinstance(answers, dict):
        raise Wrong(
            f"`{name}` is a {type(answers).__name__}, expected a dictionary with the numbers of the cases as its keys."
        )
    return answers


def _of_this_rank(name):
    return vars(learners_module()).get(name)

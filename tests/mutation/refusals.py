"""Sum up in one line why nbval refused a notebook."""

import re

# A name that is not bound, or an invalid program: Python itself refuses it, so it proves nothing about the lesson.
NO_PROGRAM = re.compile(r"\b(SyntaxError|IndentationError|NameError|UnboundLocalError|ImportError)\b")


def judged(refusal: str) -> tuple[str, str]:
    """Return "refused" or "no program", and one line with the cell and the reason, from nbval's message."""
    cell = re.search(r"^Cell (\d+): (.*)", refusal, re.M)
    if not cell:  # pytest's own time limit
        return "refused", refusal.strip().splitlines()[0]
    where, reason = f"cell {int(cell[1]) + 1}", cell[2]
    if "exception" in reason:
        traceback = refusal.partition("Traceback:\n")[2]
        errors = re.findall(r"^(?:\[\d+:\w+\]: *)?(\w*(?:Error|Exception|Interrupt|Timeout)\b.*)$", traceback, re.M)
        reason = errors[-1][:100] if errors else reason
    return "no program" if NO_PROGRAM.match(reason) else "refused", f"{where}: {reason}"

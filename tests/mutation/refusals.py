"""What nbval says of a notebook that it refuses, in one line."""

import re

# A name that is not bound, or no program at all: Python itself says so, and the draw proves nothing about the lesson.
NO_PROGRAM = re.compile(r"\b(SyntaxError|IndentationError|NameError|UnboundLocalError|ImportError)\b")


def judged(refusal: str) -> tuple[str, str]:
    """Return "refused" or "no program", and one line that says where and why, of what nbval says of a refused cell."""
    cell = re.search(r"^Cell (\d+): ", refusal, re.M)
    traceback = refusal.partition("Traceback:\n")[2].strip()
    error = re.findall(r"^(?:\[\d+:\w+\]: *)?(\w*(?:Error|Exception|Interrupt|Timeout)\b.*)$", traceback, re.M)
    where = f"cell {int(cell[1]) + 1}" if cell else "the time limit"
    if error and NO_PROGRAM.match(error[-1]):
        return "no program", f"{where}: {error[-1]}"
    return "refused", f"{where}: {(error or traceback.splitlines() or refusal.splitlines())[-1][:100]}"

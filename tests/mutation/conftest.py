"""The report on random mutants: how many each notebook has refused, by what, and which live."""

import re
from collections import Counter

# Other errors are raised by Python, PyTorch or gloo, whatever the lesson asserts.
NOTICED = re.compile(r"AssertionError|Cell outputs differ")
BY_LESSON = "an assert or a stored output"


def pytest_terminal_summary(terminalreporter):
    """Print the mutants of each notebook with the lines that they change, and how many it has refused."""
    results = {}
    for report in [report for reports in terminalreporter.stats.values() for report in reports]:
        found = dict(getattr(report, "user_properties", []))
        if "outcome" in found and report.when == "call":
            results.setdefault(found["notebook"], []).append(found)
    for notebook, mutants in sorted(results.items()):
        terminalreporter.section(notebook)
        for found in sorted(mutants, key=lambda found: (found["outcome"], found["mutant"][2])):
            terminalreporter.write_line(described(found))
        counts = Counter(found["outcome"] for found in mutants)
        judged = counts["refused"] + counts["lives"]
        others = f"; {counts['equivalent']} equivalent and {counts['no program']} that are no program do not count"
        by_lesson = sum(NOTICED.search(found.get("reason", "")) is not None for found in mutants)
        terminalreporter.write_line(f"{counts['refused']} of {judged} refused, {by_lesson} by {BY_LESSON}{others}")


def described(found):
    """Return the lines of the report on one mutant."""
    name, operator, cell, before, after = found["mutant"]
    first = f"{found['outcome']}: {name} in cell {cell}, {operator}; {found.get('reason', '')}".rstrip("; ")
    changed = [f"    - {line}" for line in before.splitlines()] + [f"    + {line}" for line in after.splitlines()]
    return "\n".join([first, *changed])

"""A canary that fails says in one sentence what has moved: its docstring."""

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        report.sections.insert(0, ("what has moved", " ".join((item.obj.__doc__ or item.name).split())))
    return report


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.stats.get("failed", []):
        moved = dict(report.sections).get("what has moved")
        if moved is not None:  # otherwise it is the report of another test, which ran together with the canaries
            terminalreporter.write_line(f"moved: {moved}")
    for report in terminalreporter.stats.get("error", []):  # a whole module whose imports have moved
        terminalreporter.write_line(f"moved: {str(report.longrepr).splitlines()[-1]}")

"""Where a rank logs what goes wrong in its own helpers: to standard error, which leads to the log of the rank."""

import logging
import sys
import traceback


def log_to_standard_error() -> None:
    """Send the log of the helpers in this process to standard error, and not into the output of a cell; twice is once.

    `sys.stderr` would be the output of whatever cell runs at the moment.
    """
    logger = logging.getLogger("helpers")
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler(sys.__stderr__))
        logger.propagate = False


def say(error: BaseException) -> str:
    """Return the class and the text of an error on one line."""
    return " ".join("".join(traceback.format_exception_only(error)).split())

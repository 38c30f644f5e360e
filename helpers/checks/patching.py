"""Functions replaced for the time of a block. What only observes calls of torch subscribes to `helpers.tap` instead."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def replaced(changes: Sequence[tuple[object, str, Callable]]) -> Iterator[None]:
    """Give classes or modules other functions, as (owner, name, function), while the block runs."""
    originals = [(owner, name, vars(owner)[name]) for owner, name, _ in changes]
    try:
        for owner, name, function in changes:
            setattr(owner, name, function)
        yield
    finally:
        for owner, name, function in originals:
            setattr(owner, name, function)

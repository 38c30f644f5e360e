"""Replace functions inside a block. To observe calls of torch without replacing them, subscribe to `helpers.tap`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def replaced(changes: Sequence[tuple[object, str, Callable]]) -> Iterator[None]:
    """Replace functions of classes or modules, given as (owner, name, function), while the block runs."""
    originals = [(owner, name, vars(owner)[name]) for owner, name, _ in changes]
    try:
        for owner, name, function in changes:
            setattr(owner, name, function)
        yield
    finally:
        for owner, name, function in originals:
            setattr(owner, name, function)

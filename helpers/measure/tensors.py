"""Bytes of tensors, counted over their storages: of given tensors, or of all that are alive in this process."""

import gc
from collections.abc import Iterable

import torch


def nbytes(tensors: Iterable[torch.Tensor | None]) -> int:
    """Return the bytes of the storages of these tensors.

    Tensors that share a storage, such as a tensor and its views, count once, with the whole storage. None counts as 0,
    and a DTensor counts as its local shard.
    """
    storages = {}
    for tensor in tensors:
        if to_local := getattr(tensor, "to_local", None):
            tensor = to_local()
        if tensor is not None:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def alive() -> int:
    """Return the bytes of all tensors that Python objects refer to now.

    The sum does not include tensors that only autograd keeps for the backward pass, nor tensors from before the ranks
    were forked. Garbage is collected first.
    """
    gc.collect()
    # `isinstance` would ask proxy objects for the class that they imitate.
    return nbytes([thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)])

"""Bytes of tensors, counted over their storages: those of some tensors, or of all that are alive in this process."""

import gc
from collections.abc import Iterable

import torch


def nbytes(tensors: Iterable[torch.Tensor | None]) -> int:
    """Return the bytes of the storages of these tensors.

    Tensors that share a storage, as a tensor and its views do, count once, with the whole of it. None counts nothing,
    and a DTensor what this rank has of it.
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
    """Return the bytes of all tensors that Python objects hold now; what only autograd keeps for backward is not seen.

    Garbage is collected before. What was there before the ranks were forked is not counted.
    """
    gc.collect()
    # `isinstance` would ask objects that only stand for others which class they say that they have.
    return nbytes([thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)])

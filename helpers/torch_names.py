"""The names that release 2.13 gave to functions of torch, for lessons that also run with older releases."""

import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

_RENAMED = (
    (dist, "all_gather_single", "all_gather_into_tensor"),
    (dist, "reduce_scatter_single", "reduce_scatter_tensor"),
    (functional, "all_gather_single_autograd", "all_gather_tensor_autograd"),
)


def use_names_of_2_13() -> None:
    """Give the new names to the functions of an older release; release 2.13 and newer stay as they are."""
    for module, new, old in _RENAMED:
        if not hasattr(module, new):
            setattr(module, new, getattr(module, old))

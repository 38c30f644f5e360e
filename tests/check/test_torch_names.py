"""Lessons can call torch by the names of release 2.13, whichever release is installed."""

import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from helpers.torch_names import use_names_of_2_13


def test_an_older_release_gets_the_new_names(monkeypatch):
    def by_older_name(*arguments, **options):
        """Stand for the function of an older release."""

    for module, new, old in (
        (dist, "all_gather_single", "all_gather_into_tensor"),
        (dist, "reduce_scatter_single", "reduce_scatter_tensor"),
        (functional, "all_gather_single_autograd", "all_gather_tensor_autograd"),
    ):
        monkeypatch.delattr(module, new, raising=False)
        monkeypatch.setattr(module, old, by_older_name)
        use_names_of_2_13()
        assert vars(module)[new] is by_older_name
        monkeypatch.undo()


def test_the_names_of_the_installed_release_stay(monkeypatch):
    def of_this_release(*arguments, **options):
        """Stand for the function of this release."""

    monkeypatch.setattr(dist, "all_gather_single", of_this_release, raising=False)
    use_names_of_2_13()
    assert dist.all_gather_single is of_this_release

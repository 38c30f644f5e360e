"""Bytes of tensors: each storage counts once, what is freed counts no more, and what nobody holds is not alive."""

import torch

from helpers import tensors


def test_a_view_counts_the_whole_of_its_storage_once():
    whole = torch.zeros(10, dtype=torch.float64)
    assert tensors.nbytes([whole[:1]]) == 80
    assert tensors.nbytes([whole, whole[:1], whole.view(2, 5), None]) == 80
    assert tensors.nbytes([whole, whole.clone()]) == 160
    assert tensors.nbytes([]) == 0


def test_a_storage_that_was_given_back_counts_nothing():
    whole = torch.zeros(10)
    whole.untyped_storage().resize_(0)
    assert whole.nbytes == 40 and tensors.nbytes([whole]) == 0


def test_alive_sees_what_objects_hold():
    class Holder:
        pass

    before = tensors.alive()
    holder = Holder()
    holder.itself = holder  # garbage that only a collection finds
    holder.parameter = torch.nn.Parameter(torch.zeros(1000))
    holder.parameter.grad = torch.zeros(1000)
    assert tensors.alive() - before == 8000
    holder.view = holder.parameter.data[:1]
    holder.parameter = None
    assert tensors.alive() - before == 4000
    del holder
    assert tensors.alive() == before

"""The data of the course: small, real, the same for everybody."""

import torch

from helpers import datasets


def test_digits():
    training, test = datasets.digits()
    assert (len(training), len(test)) == (1500, 297)
    for samples, count in ((training, 1500), (test, 297)):
        images, labels = samples[:]
        assert images.shape == (count, 64)
        assert images.dtype == torch.float32
        assert (images.min(), images.max()) == (0, 1)
        assert labels.bincount().min() > count / 10 * 0.7  # every digit, about equally often


def test_digits_are_the_same_every_time_and_leave_the_seed_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, second = datasets.digits()[0], datasets.digits()[0]
    assert torch.equal(first.tensors[0], second.tensors[0])
    assert torch.equal(torch.rand(3), expected)


def test_passages():
    bags, labels, words = datasets.passages()
    assert len(bags) == len(labels) > 900
    assert all(8 <= len(bag) <= 24 for bag in bags) and len({len(bag) for bag in bags}) == 17
    counts = labels.bincount()
    assert len(counts) == 6 and counts.min() > 0.9 * counts.max()
    used = torch.cat(bags).unique()
    assert torch.equal(used, torch.arange(len(words))) and words == sorted(set(words))


def test_passages_are_the_same_every_time():
    first, second = datasets.passages(), datasets.passages()
    assert all(map(torch.equal, first.bags, second.bags)) and torch.equal(first.labels, second.labels)

"""The data of the course: small, real, the same for everybody."""

import hashlib

import torch

from helpers import datasets

# SHA-256 of the training images, training labels, test images and test labels that scikit-learn 1.9.1 gave the course.
SHA256_OF_DIGITS = [
    "783e937c891397672c5bf3d138da8ff5ccbe7472f29c87a5d89a0b647728aa37",
    "60167e13d1f9cb0cb9173ceef4e9406390105c82e3d297aee4ba8bf07391e3c7",
    "237884f2e63d1a4ba9f9e9b85af3be1f74eed42f8586ec51153e28eed2e749cf",
    "5334771414d24b53d5bda1dbe615b4c89d003f54745c78fcedb4caf7c4e0108e",
]


def test_digits():
    training, test = datasets.digits()
    assert (len(training), len(test)) == (1500, 297)
    for samples, count in ((training, 1500), (test, 297)):
        images, labels = samples[:]
        assert images.shape == (count, 64)
        assert images.dtype == torch.float32
        assert (images.min(), images.max()) == (0, 1)
        assert labels.bincount().min() > count / 10 * 0.7  # every digit, about equally often


def test_digits_equal_the_values_from_scikit_learn_bit_for_bit():
    tensors = [tensor for samples in datasets.digits() for tensor in samples.tensors]
    assert [tensor.dtype for tensor in tensors] == [torch.float32, torch.int64] * 2
    assert [hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for tensor in tensors] == SHA256_OF_DIGITS


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


def test_help_texts():
    training, validation, words = datasets.help_texts()
    assert len(training) > 40_000 and 5_000 < len(validation) < len(training) / 5
    assert len(words) == len(set(words)) == 1000 and words[:2] == ["<end>", "<rare>"]
    for part in (training, validation):
        assert part.dtype == torch.int64 and part.min() == 0 and part.max() < len(words)
        assert part[-1] == 0 and (part == 1).float().mean() < 0.12
    counts = training.bincount()[2:].tolist()
    assert counts == sorted(counts, reverse=True) and counts[-1] > 0


def test_no_paragraph_of_the_help_texts_is_in_both_parts():
    training, validation, words = datasets.help_texts(10_000)  # no word is rare in the training part
    assert not (training == 1).any()
    paragraphs = [set(" ".join(words[n] for n in part).split("<end>")) for part in (training, validation)]
    assert len(paragraphs[1]) > 100
    assert not {p for p in paragraphs[0] & paragraphs[1] if p.strip()}


def test_help_texts_are_the_same_every_time():
    first, second = datasets.help_texts(), datasets.help_texts()
    assert torch.equal(first.training, second.training) and first.words == second.words

"""Small real data that comes with the packages of the course, so that nothing is downloaded."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

_TRAINING = 1500


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Return handwritten digits for training (1,500) and for testing (297), the same on every rank and every run.

    Each sample is an image, of shape (64,), an 8 x 8 grid of grey values from 0 to 1, row by row, and its label, 0 to
    9. They are those of scikit-learn, in an order of our own, because the original goes by writer.

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
    https://doi.org/10.24432/C50P49
    """
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images = torch.from_numpy(images).float()[order] / 16
    labels = torch.from_numpy(labels)[order]
    return (
        TensorDataset(images[:_TRAINING], labels[:_TRAINING]),
        TensorDataset(images[_TRAINING:], labels[_TRAINING:]),
    )

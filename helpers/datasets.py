"""Small real data sets that come with the course or with Python, so that nothing is downloaded."""

import random
import re
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import TensorDataset

_DIGITS = Path(__file__).resolve().parent / "data/digits.npz"
_TRAINING = 1500
_CHAPTERS = ("specialnames", "compound", "string-methods", "debugger", "typesseq", "formatstrings")
_WORDS_OF_A_CHAPTER = 2600  # the shortest chapter has a few more
_SHORTEST_PARAGRAPH = 8  # words; shorter paragraphs are mostly headings


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Return handwritten digits for training (1,500) and for testing (297), the same on every rank and in every run.

    Each sample has an image of shape (64,), the grey values from 0 to 1 of an 8 x 8 grid, row by row, and a label from
    0 to 9. The samples are shuffled, because the original data set is ordered by writer.

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
    https://doi.org/10.24432/C50P49, under CC BY 4.0; see `helpers/data/README.txt`.
    """
    with np.load(_DIGITS) as stored:
        images, labels = torch.from_numpy(stored["images"]), torch.from_numpy(stored["labels"])
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = images[order].float() / 16, labels[order].long()
    return (
        TensorDataset(images[:_TRAINING], labels[:_TRAINING]),
        TensorDataset(images[_TRAINING:], labels[_TRAINING:]),
    )


class Passages(NamedTuple):
    """Passages of text: a tensor of word numbers per passage, of shape (its length,); the labels; the vocabulary."""

    bags: list[torch.Tensor]
    labels: torch.Tensor
    words: list[str]


def passages() -> Passages:
    """Return about a thousand passages of 8 to 24 words from six chapters of Python's help, in a random order.

    The label of a passage is the number of its chapter, 0 to 5; all chapters have about the same number of passages.
    The texts are from `help()` of this version of Python, so they differ a little between versions; for one version
    they are the same on every rank and in every run.
    """
    generator = random.Random(0)
    texts, labels = [], []
    for label, chapter in enumerate(_CHAPTERS):
        words = re.findall(r"[a-z_]+", topics[chapter].lower())[:_WORDS_OF_A_CHAPTER]
        while len(words) >= 24:
            length = generator.randint(8, 24)
            texts.append(words[:length])
            labels.append(label)
            del words[:length]
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).tolist()
    vocabulary = sorted(set(sum(texts, [])))
    number = {word: place for place, word in enumerate(vocabulary)}
    bags = [torch.tensor([number[word] for word in texts[place]]) for place in order]
    return Passages(bags, torch.tensor(labels)[order], vocabulary)


class HelpTexts(NamedTuple):
    """Running text: word numbers of shape (words,) for training and for validation, and the vocabulary."""

    training: torch.Tensor
    validation: torch.Tensor
    words: list[str]


def help_texts(size: int = 1000) -> HelpTexts:
    """Return the text of Python's help, about 50,000 words for training and 7,500 for validation.

    A word is a run of letters, in lower case, or one of the marks . , : and ; and every paragraph ends with <end>. The
    `size` - 2 most frequent words of the training part have the numbers from 2 up, the most frequent word first; all
    other words have number 1, <rare>. Number 0 is <end>. A paragraph that occurs in several chapters is used only once,
    so no paragraph is in both parts. In each run of 80 paragraphs the last 10 are for validation.

    The texts are from `help()` of this version of Python, so they differ a little between versions; for one version
    they are the same on every rank and in every run. If `size` exceeds the number of different words, each word has a
    number of its own.
    """
    paragraphs = [p for topic in topics.values() for p in re.split(r"\n\s*\n", topic.lower())]
    texts = dict.fromkeys(tuple(re.findall(r"[a-z_]+|[.,:;]", paragraph)) for paragraph in paragraphs)
    parts = [], []
    for place, text in enumerate(text for text in texts if len(text) >= _SHORTEST_PARAGRAPH):
        parts[place // 10 % 8 == 7].extend([*text, "<end>"])
    training, validation = parts
    ranking = Counter(word for word in training if word != "<end>").most_common(size - 2)
    words = ["<end>", "<rare>", *(word for word, _ in ranking)]
    number = {word: place for place, word in enumerate(words)}
    return HelpTexts(*(torch.tensor([number.get(word, 1) for word in part]) for part in parts), words)

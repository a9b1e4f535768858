from pathlib import Path

import numpy as np
import pytest
import torch
from local_starts import timm_folder

from dualtemp.data import open_source
from dualtemp.data.images import Splits
from dualtemp.encoder.encoder import run_encoder
from dualtemp.errors import UserError
from dualtemp.evaluation.frozen_sample import sample_knn
from dualtemp.evaluation.knn import best_k

__all__ = ["timm_folder"]  # fixture


def test_a_sample_is_judged_as_by_votes_written_down_plainly(timm_folder: Path) -> None:
    encoder, splits = run_encoder(timm_folder, "cpu"), open_source("digits")
    parts = {}
    for name, part in (("train", splits.train), ("test", splits.test)):
        assert part is not None
        some = part.subset(40, 0)
        assert some.labels is not None
        parts[name] = np.concatenate([found.numpy() for _, found in encoder.features(some)]), some.labels
    (bank, labels), (asked, truth) = parts["train"], parts["test"]
    k = best_k(torch.from_numpy(bank), labels)
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (bank.astype(float), asked.astype(float))]
    right = 0
    for z, label in zip(unit[1], truth.tolist(), strict=True):
        s = unit[0] @ z
        votes = np.zeros(10)
        for i in np.argsort(-s)[:k]:
            votes[labels[i]] += np.exp(s[i] / 0.1)
        right += int(votes.argmax() == label)
    assert sample_knn(encoder, splits, 40) == pytest.approx(100 * right / 40)


def test_without_labels_nothing_can_be_judged(timm_folder: Path) -> None:
    splits = open_source("digits")
    with pytest.raises(UserError, match="no labels"):
        sample_knn(run_encoder(timm_folder, "cpu"), Splits(splits.train), 40)

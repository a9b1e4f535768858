"""Measures after an epoch: online probe, kNN, geometry of the features, and measures of plugins."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from dualtemp.config import Settings
from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet
from dualtemp.data.loading.loader import Loader, evaluation_batches
from dualtemp.data.training_data import TrainingData
from dualtemp.evaluation.accuracy import top_accuracy
from dualtemp.evaluation.features import image_features, image_features_and_labels
from dualtemp.evaluation.knn import best_k, knn_accuracy
from dualtemp.evaluation.measures import compute_declared
from dualtemp.evaluation.probe import OnlineProbe
from dualtemp.evaluation.spread import alignment, effective_rank, feature_spread, uniformity
from dualtemp.frameworks.network import Network

SPREAD_IMAGES = 2_000  # most images without labels, and for measures whose cost grows faster than their number
ALIGNED_IMAGES = 512  # most images whose two augmented views are compared
ALIGNED_BATCH = 64  # small, since each image is held twice, and may be large


class NonfiniteFeatures(Exception):
    """The features are not finite: weights, though finite, may have grown so large that features overflow."""


def evaluate(
    network: Network,
    probe: OnlineProbe | None,
    data: TrainingData,
    settings: Settings,
    device: torch.device,
    workers: int | None = None,
    *,
    epoch: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    note: Callable[[str], None] = lambda text: None,
    look: Callable[[Tensor, Tensor], dict[str, float]] = lambda features, labels: {},
) -> dict[str, float]:
    """Measure an encoder after an epoch (from 0): accuracies in %, geometry of the features, plugins' measures; by key.

    All use clean images except alignment, which compares two augmented views as drawn in this epoch.

    progress: called after each batch with the number of images seen, and of all; note: called when a plugin's measure
    fails, which is then left out; look: called with features and labels of the training images that kNN searches;
    returns further measures.
    """
    parts = [few(data.images, SPREAD_IMAGES)]
    if data.bank is not None and data.test is not None:
        parts = [data.test, few(data.bank, settings.knn_images)]
    pairs = min(len(data.images), ALIGNED_IMAGES)
    total, done = pairs - pairs % min(ALIGNED_BATCH, pairs) + sum(map(len, parts)), 0

    def seen(images: int) -> None:
        nonlocal done
        done += images
        progress(done, total)

    aligned = {"alignment": view_alignment(network.backbone, data, epoch, device, workers, seen)}
    if data.bank is None or data.test is None:
        batches = evaluation_batches(
            parts[0], data.views, device=device, workers=workers, problems=data.unreadable, may_be_empty=False
        )
        pixels = (batch.pixels for batch in _counting(batches, seen))
        return {**sphere(image_features(network.backbone, pixels)), **aligned}
    found, labels = clean_features(network.backbone, data.test, data.views, device, workers, data.unreadable, seen)
    if probe is None:  # supervised: the network is its own classifier
        with torch.inference_mode():
            top1, top5 = top_accuracy(network.projector(found), labels)
    else:
        top1, top5 = probe.accuracy(found, labels)
    bank = clean_features(network.backbone, parts[1], data.views, device, workers, data.unreadable, seen)
    geometry = sphere(found if len(found) > 1 else bank[0])  # one image alone has no spread
    k = best_k(*bank) if settings.knn == "auto" else settings.knn
    nearest = knn_accuracy(*bank, found, labels, k=k).top1
    return {
        "probe_top1": 100 * top1,
        "probe_top5": 100 * top5,
        "knn_top1": 100 * nearest,
        **({"knn_k": k} if settings.knn == "auto" else {}),
        **geometry,
        **aligned,
        **look(*bank),
        **compute_declared(*bank, found, labels, note=note),
    }


def sphere(features: Tensor) -> dict[str, float]:
    """Spread of features (N, F); uniformity (if N > 1) and effective rank of at most 2,000 of them, evenly spaced.

    Raises NonfiniteFeatures if a feature is not finite.
    """
    if not features.isfinite().all():
        raise NonfiniteFeatures
    some = features
    if len(features) > SPREAD_IMAGES:
        some = features[torch.linspace(0, len(features) - 1, SPREAD_IMAGES, device=features.device).long()]
    return {
        "spread": float(feature_spread(features)),
        **({"uniformity": float(uniformity(some))} if len(some) > 1 else {}),
        "effective_rank": float(effective_rank(some.cpu())),  # MPS has no singular values
    }


def view_alignment(
    backbone: nn.Module,
    data: TrainingData,
    epoch: int,
    device: torch.device,
    workers: int | None = None,
    seen: Callable[[int], None] = lambda images: None,
) -> float:
    """Alignment of two views of training images: the same images in every epoch, but newly drawn views."""
    images = few(data.images, ALIGNED_IMAGES)
    size = min(ALIGNED_BATCH, len(images))
    with Loader(images, data.views, size, device=device, workers=workers) as loader:
        features = image_features(
            backbone, (torch.cat(batch.views) for batch in _counting(loader.batches(epoch), seen))
        )
    one, other = features.unflatten(0, (-1, 2, size)).transpose(0, 1).flatten(1, 2)  # each (images, F)
    return float(alignment(one, other))


def few(images: ImageSet, count: int) -> ImageSet:
    """At most `count` images, always the same ones."""
    return images if len(images) <= count else images.subset(count, seed=0)


def clean_features(
    backbone: nn.Module,
    images: ImageSet,
    views: Views,
    device: torch.device,
    workers: int | None = None,
    problems: dict[str, str] | None = None,
    seen: Callable[[int], None] = lambda images: None,
) -> tuple[Tensor, Tensor]:
    """Features (N, F) and labels (N,) of the images, without augmentation; problems: as in `evaluation_batches`."""
    clean = evaluation_batches(images, views, device=device, workers=workers, problems=problems, may_be_empty=False)
    batches = ((batch.pixels, batch.labels) for batch in _counting(clean, seen))
    return image_features_and_labels(backbone, batches)  # pyright: ignore


def _counting(batches: Iterable[Any], seen: Callable[[int], None]) -> Iterator[Any]:
    """Pass batches on; `seen` is called with the size of each once it has been used."""
    for batch in batches:
        yield batch
        seen(len(batch.index))

"""What is measured after an epoch, on clean images: online probe, kNN, feature spread."""

import torch
from torch import Tensor, nn

from dualtemp.config import Settings
from dualtemp.data.images import ImageSet
from dualtemp.data.loader import evaluation_batches
from dualtemp.data.views import Views
from dualtemp.evaluation.accuracy import top_accuracy
from dualtemp.evaluation.features import image_features, image_features_and_labels
from dualtemp.evaluation.knn import knn_accuracy
from dualtemp.evaluation.probe import OnlineProbe
from dualtemp.evaluation.spread import feature_spread
from dualtemp.methods.network import Network
from dualtemp.training.training_data import TrainingData

SPREAD_IMAGES = 2_000  # of a set without labels, where only the spread is measured
BATCH = 256


def evaluate(
    network: Network,
    probe: OnlineProbe | None,
    data: TrainingData,
    chosen: Settings,
    device: torch.device,
    workers: int | None = None,
) -> dict[str, float]:
    """Accuracies in %, top-1 and top-5 of the probe and top-1 of kNN, and the spread of the features."""
    if data.bank is None or data.test is None:
        images = few(data.images, SPREAD_IMAGES)
        batches = (
            batch.pixels for batch in evaluation_batches(images, data.views, BATCH, device=device, workers=workers)
        )
        return {"spread": float(feature_spread(image_features(network.backbone, batches)))}
    found, labels = clean_features(network.backbone, data.test, data.views, device, workers)
    if probe is None:  # supervised: the classifier itself
        with torch.inference_mode():
            top1, top5 = top_accuracy(network.projector(found), labels)
    else:
        top1, top5 = probe.accuracy(found, labels)
    bank = clean_features(network.backbone, few(data.bank, chosen.knn_images), data.views, device, workers)
    nearest = knn_accuracy(*bank, found, labels, k=chosen.knn).top1
    return {
        "probe_top1": 100 * top1,
        "probe_top5": 100 * top5,
        "knn_top1": 100 * nearest,
        "spread": float(feature_spread(found)),
    }


def few(images: ImageSet, count: int) -> ImageSet:
    """At most so many images, always the same ones."""
    return images if len(images) <= count else images.subset(count, seed=0)


def clean_features(
    backbone: nn.Module, images: ImageSet, views: Views, device: torch.device, workers: int | None = None
) -> tuple[Tensor, Tensor]:
    """Features (N, F) and labels (N,) of the images, without augmentation, on the device."""
    batches = evaluation_batches(images, views, BATCH, device=device, workers=workers)
    return image_features_and_labels(backbone, ((batch.pixels, batch.labels) for batch in batches))  # pyright: ignore

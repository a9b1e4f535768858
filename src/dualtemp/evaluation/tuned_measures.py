"""Fine-tune a run's encoder on labeled images, and the same network from scratch, and compare both."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dualtemp.data.images import ImageSet
from dualtemp.data.loading.loader import Loader, evaluation_batches
from dualtemp.encoder.encoder import RunEncoder
from dualtemp.evaluation.accuracy import predicted, top_accuracy
from dualtemp.evaluation.answers import TRAINED, Answers
from dualtemp.evaluation.evaluation_file import result
from dualtemp.evaluation.features import image_features_and_labels
from dualtemp.evaluation.fine_tune import default_batch, default_epochs, fine_tuned
from dualtemp.evaluation.labeled_data import LabeledData, labels_of
from dualtemp.quantities import duration
from dualtemp.training.schedule import lr_factor

RECIPE = "weak"  # crop a little and flip
WARMUP = 0.1  # share of the steps
TRIAL_STEPS = 3  # timed to predict the duration
PROGRESS_LINES = 5  # lines of progress per encoder


class Tuned(NamedTuple):
    """A fine-tuned network.

    model: images -> features -> logits; train: its training images, as the encoder takes them; features (M, F) and
    labels (M,) of the test images; learned: number of images that it has learned from; epochs: passes over them.
    """

    model: nn.Module
    train: ImageSet
    features: Tensor
    labels: Tensor
    learned: int
    epochs: int


def tuned_measures(
    encoders: dict[str, RunEncoder],
    found: LabeledData,
    epochs: int | None,
    seed: int,
    workers: int | None,
    tell: Callable[[str], None],
    problems: dict[str, str],
    on_tuned: Callable[[Tuned], None] = lambda tuned: None,
) -> Iterator[dict[str, Any]]:
    """Fine-tune each encoder and yield its row.

    tell: called with messages, first the expected time; problems: unreadable files; on_tuned: called with the trained
    encoder's fine-tuned network.
    """
    encoder = encoders["trained"]
    views = encoder.views.with_recipe(RECIPE, seed)
    train, test = encoder.fitted(found.train), encoder.fitted(found.test)
    epochs = default_epochs(len(train)) if epochs is None else epochs
    batch = default_batch(len(train))
    with Loader(train, views, batch, device=encoder.device, workers=workers, count=1) as loader:

        def batches(epoch: int) -> Generator[tuple[Tensor, Tensor]]:
            for each in loader.batches(epoch):
                assert each.labels is not None
                yield encoder.in_memory_format(each.views[0]), each.labels

        steps = epochs * loader.steps
        seconds = _seconds_of_step(encoder, found.classes, batches) * steps * len(encoders)

        def factor(step: int) -> float:
            return lr_factor(step, steps, round(WARMUP * steps))

        both = " and ".join(f"the {name}" for name in encoders)
        seen = f"each {epochs} epochs of {train.readable_count(problems):,} images"
        tell(f"fine-tuning {both} encoder, {seen}: about {duration(seconds)}")
        answers = Answers(found.train.classes)
        for name, each in encoders.items():
            began = time.monotonic()

            def after(epoch: int, loss: float, name: str = name) -> None:
                found.check_readable(labels_of(found.train, loader.problems), labels_of(found.test))
                if epoch == epochs or epoch % -(-epochs // PROGRESS_LINES) == 0:
                    tell(f"{name}: fine-tuning, epoch {epoch}/{epochs}, loss {loss:.3f}")

            model = fine_tuned(
                each.backbone,
                each.width,
                found.classes,
                batches,
                epochs,
                lr_factor=factor,
                seed=seed,
                after_epoch=after,
            )
            problems |= loader.problems
            features, logits, labels = _answers(model, each, test, workers, problems)
            top1, top5 = top_accuracy(logits, labels)
            tell(f"{name}: fine-tuning {100 * top1:.2f} %, {duration(time.monotonic() - began)}")
            learned, top5 = train.readable_count(problems), top5 if found.classes > 5 else None
            if name == TRAINED:
                on_tuned(Tuned(model, train, features, labels, learned, epochs))
            row = result("fine-tuning", name, found.name, top1, top5, len(labels), learned, began)
            yield {**row, "epochs": epochs, **answers.details(row["name"], name, [predicted(logits)], labels)}


def _seconds_of_step(
    encoder: RunEncoder, classes: int, batches: Callable[[int], Generator[tuple[Tensor, Tensor]]]
) -> float:
    """Seconds per step of fine-tuning, timed over a few steps on a copy, without the first, which fills caches."""
    times: list[float] = []

    def some(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        with closing(batches(epoch)) as all_of_it:
            for batch in islice(all_of_it, TRIAL_STEPS):
                times.append(time.monotonic())
                yield batch

    fine_tuned(encoder.backbone, encoder.width, classes, some, 1)
    times.append(time.monotonic())
    return (times[-1] - times[1]) / (len(times) - 2) if len(times) > 2 else times[-1] - times[0]


class _Both(nn.Module):
    """Images -> features and logits (N, F + classes) of a fine-tuned network."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = model.children()

    def forward(self, images: Tensor) -> Tensor:
        features = self.encoder(images)
        return torch.cat((features, self.head(features)), 1)


def _answers(
    model: nn.Module, encoder: RunEncoder, test: ImageSet, workers: int | None, problems: dict[str, str]
) -> tuple[Tensor, Tensor, Tensor]:
    """Features (M, F), logits (M, classes) and labels (M,) of the test images that can be read."""
    clean = evaluation_batches(
        test, encoder.views, device=encoder.device, workers=workers, problems=problems, may_be_empty=False
    )
    batches = ((encoder.in_memory_format(each.pixels), each.labels) for each in clean)
    both, labels = image_features_and_labels(_Both(model), batches)  # pyright: ignore[reportArgumentType]
    return both[:, : encoder.width], both[:, encoder.width :], labels

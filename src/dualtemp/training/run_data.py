"""The data of a run: opened, checked against its settings, and the same when it goes on."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dualtemp import distributed
from dualtemp.config import Settings
from dualtemp.data import open_source
from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet, Splits
from dualtemp.data.normalization import Normalization, earlier_normalization, normalization
from dualtemp.data.sources.catalogue import DEFAULT_VIEW_SIZE, resolved_name
from dualtemp.data.sources.label_noise import with_label_noise
from dualtemp.data.sources.opening import named_path
from dualtemp.data.sources.validation import held_out_for_validation
from dualtemp.data.training_data import TrainingData
from dualtemp.errors import UserError
from dualtemp.runs.folder import RunFolder

# How a run treats its images, in environment.json: since 2 all copies of an image are on one side of a split, and own
# images in colour are normalised by their own figures.
SPLIT = 2


def split_of(environment: Mapping[str, Any] | None) -> int:
    """How the images of a run were held out; where nothing is known of the run, as it is done now."""
    return environment.get("split", 1) if environment else SPLIT


def resolve_data(chosen: Settings) -> Settings:
    """The settings with the data's own name, or with a path to them that holds from any folder."""
    path = named_path(chosen.data)
    data = resolved_name(chosen.data) if path is None else str(path.resolve())
    return chosen.model_copy(update={"data": data})


def open_data(chosen: Settings, environment: Mapping[str, Any] | None = None) -> Splits:
    """The data of a run; on several processes, rank 0 first, which may have to fetch it.

    environment: environment.json of a run that is there already, whose split stays as it was; None for a new one.
    """

    def whole() -> Splits:
        return open_source(chosen.data, labels=chosen.labels, together=split_of(environment) == SPLIT)

    if distributed.world_size() > 1:
        distributed.run_on_rank0(lambda: whole() and None)
    splits = whole()
    there = len(splits.train)
    if chosen.validate == "held-out":
        splits = held_out_for_validation(splits)
    if chosen.subset is not None:
        amount = chosen.subset
        if isinstance(amount, int) and len(splits.train) < amount <= there:
            amount = len(splits.train)  # what is left of a count that the whole set has
        splits = replace(splits, train=splits.train.subset(amount, chosen.seed), unlabeled=None)
    if chosen.framework.learns_from_labels:
        if splits.train.labels is None:
            raise UserError(
                f"{chosen.method} learning needs labels, and {chosen.data} has none: choose another --method"
            )
        if chosen.get("label_noise"):
            splits = with_label_noise(splits, chosen.options.noise, chosen.options.label_noise, chosen.seed)
    return splits


def run_normalization(chosen: Settings, splits: Splits, environment: Mapping[str, Any] | None) -> Normalization:
    """Mean and std of a run's images: of a run that is there already, those that it began with."""
    pixels = splits.train.pixels
    try:
        known = (environment or {})["images"]
        mean, std = (tuple(float(value) for value in known[name]) for name in ("mean", "std"))
        assert len(mean) == len(std) == splits.train.channels
        return mean, std
    except (TypeError, KeyError, ValueError, AssertionError):
        how = normalization if split_of(environment) == SPLIT else earlier_normalization
        return distributed.run_on_rank0(lambda: how(chosen.data, pixels))


def training_data(chosen: Settings, splits: Splits, environment: Mapping[str, Any] | None = None) -> TrainingData:
    """What the loop sees of the data; environment: environment.json of a run that is there already."""
    assert chosen.image_size is not None
    mean, std = run_normalization(chosen, splits, environment)
    views = Views(chosen.recipe, chosen.image_size, chosen.seed, mean, std)
    images = splits.train if chosen.framework.learns_from_labels else splits.pretraining
    labelled = splits.train.labels is not None and splits.test is not None and splits.test.labels is not None
    return TrainingData(
        images,
        splits.train if labelled else None,
        splits.test,
        views,
        classes=_classes(splits) if labelled else 0,
        unreadable={each.name: each.reason for each in splits.unreadable},
    )


def _classes(splits: Splits) -> int:
    if splits.train.classes:
        return len(splits.train.classes)
    return 1 + max(int(part.labels.max()) for part in (splits.train, splits.test) if part and part.labels is not None)


def image_size(splits: Splits) -> int:
    """The side of a view if nobody says otherwise: that of the images, 224 for photographs."""
    side = splits.train.size
    return DEFAULT_VIEW_SIZE if side is None else max(side)


def check_batch(chosen: Settings, data: TrainingData) -> None:
    """Refuse batches that the data cannot fill, and dictionaries' parts that are larger than the whole."""
    if len(data.images) < 2:
        raise UserError(f"{chosen.data} has {len(data.images)} image to train on: at least two are needed")
    if chosen.batch > len(data.images):
        raise UserError(
            f"batch {chosen.batch} is larger than the set of {len(data.images)} images: give --batch "
            f"{1 << (len(data.images).bit_length() - 1)} or fewer"
        )
    if chosen.batch % distributed.world_size():
        raise UserError(f"batch {chosen.batch} cannot be shared by {distributed.world_size()} processes evenly")
    share = chosen.batch // distributed.world_size()
    if share < 2:
        raise UserError(f"batch {chosen.batch} leaves one image to a process: give --batch {2 * chosen.batch} or more")
    if chosen.chunk is not None and share % chosen.chunk == 1:
        raise UserError(f"chunk {chosen.chunk} leaves one image of {share} over: give another --chunk")
    if problem := chosen.options.contradiction():
        raise UserError(problem)


def describe_part(part: ImageSet | None) -> dict[str, Any] | None:
    """Size and fingerprint of a part of the data, as environment.json has them; of files, that of their names.

    commonest: images of the largest class, which naming it always would get right.
    """
    if part is None:
        return None
    about: dict[str, Any] = {}
    if part.labels is not None and (part.labels >= 0).any():
        about["commonest"] = int(part.labels[part.labels >= 0].bincount().max())
    return {"images": len(part), **part.identity(), **about}


def refuse_other_data(run: RunFolder, splits: Splits) -> None:
    """A run goes on with the images that it began with."""
    before, parts = run.read_environment(), splits.parts()
    for part in ("train", "unlabelled"):
        now, then = describe_part(parts.get(part)) or {"images": 0}, before.get(part)
        if then is None or all(now.get(name) == value for name, value in then.items()):
            continue
        told = f"had {then['images']:,} images, now there are {now['images']:,}"
        if then["images"] == now["images"]:
            told = f"still has {now['images']:,} images, but others"
        raise UserError(
            f"the data are not those that {run.path} began with: its {part} part {told}; put the images back, or train "
            f"anew with --init {run.path}, which starts from what it has learned"
        )

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
from dualtemp.data.sources.catalogue import PHOTOGRAPH, resolved_name
from dualtemp.data.sources.label_noise import with_label_noise
from dualtemp.data.sources.opening import named_path
from dualtemp.data.sources.validation import held_out_for_validation
from dualtemp.data.training_data import TrainingData
from dualtemp.errors import UserError
from dualtemp.models.model_input import INTERPOLATIONS, ModelInput
from dualtemp.runs.folder import RunFolder

# How a run treats its images, in environment.json: since 2 all copies of an image are on one side of a split, and own
# images in colour are normalised by their own figures.
SPLIT = 2


def split_of(made_with: Mapping[str, Any] | None) -> int:
    """How the images of a run were held out; where nothing is known of the run, as it is done now."""
    return made_with.get("split", 1) if made_with else SPLIT


def located(chosen: Settings) -> Settings:
    """The settings with the data's own name, or with a path to them that holds from any folder."""
    path = named_path(chosen.data)
    data = resolved_name(chosen.data) if path is None else str(path.resolve())
    return chosen.model_copy(update={"data": data})


def opened(chosen: Settings, made_with: Mapping[str, Any] | None = None) -> Splits:
    """The data of a run; on several processes, rank 0 first, which may have to fetch it.

    made_with: environment.json of a run that is there already, whose split stays as it was; None for a new one.
    """

    def whole() -> Splits:
        return open_source(chosen.data, labels=chosen.labels, together=split_of(made_with) == SPLIT)

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
        splits = replace(splits, train=splits.train.subset(amount, chosen.seed), unlabelled=None)
    if chosen.framework.learns_from_labels:
        if splits.train.labels is None:
            raise UserError(
                f"{chosen.method} learning needs labels, and {chosen.data} has none: choose another --method"
            )
        if chosen.get("label_noise"):
            splits = with_label_noise(splits, chosen.options.noise, chosen.options.label_noise, chosen.seed)
    return splits


def normalised(chosen: Settings, splits: Splits, made_with: Mapping[str, Any] | None) -> Normalization:
    """Mean and std of a run's images: of a run that is there already, those that it began with."""
    pixels = splits.train.pixels
    try:
        known = (made_with or {})["images"]
        mean, std = (tuple(float(value) for value in known[name]) for name in ("mean", "std"))
        assert len(mean) == len(std) == splits.train.channels
        return mean, std
    except (TypeError, KeyError, ValueError, AssertionError):
        how = normalization if split_of(made_with) == SPLIT else earlier_normalization
        return distributed.run_on_rank0(lambda: how(chosen.data, pixels))


def training_data(
    chosen: Settings,
    splits: Splits,
    made_with: Mapping[str, Any] | None = None,
    start_input: ModelInput | None = None,
) -> TrainingData:
    """What the loop sees of the data.

    made_with: environment.json of a run that is there already; start_input: of a new run, what its start wants.
    """
    assert chosen.image_size is not None
    splits = with_channels(splits, channels_of(made_with, start_input))
    if start_input is not None:
        mean, std, resize = start_input.mean, start_input.std, (start_input.interpolation, start_input.crop)
    else:
        mean, std = normalised(chosen, splits, made_with)
        resize = resize_of((made_with or {}).get("images"))
    views = Views(chosen.recipe, chosen.image_size, chosen.seed, mean, std, *resize)
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


def channels_of(made_with: Mapping[str, Any] | None, start_input: ModelInput | None) -> int | None:
    """Channels that a start wants, or that the images of a run had which is there already; None if nothing tells."""
    if start_input is not None:
        return start_input.channels
    images = (made_with or {}).get("images")
    found = images.get("channels") if isinstance(images, dict) else None
    return found if isinstance(found, int) else None


def with_channels(splits: Splits, channels: int | None) -> Splits:
    """All parts of a source with so many channels: a pretrained network takes gray images in its three."""
    if channels in (None, splits.train.channels):
        return splits
    try:
        parts = {
            name: None if part is None else part.convert(channels)
            for name, part in (("train", splits.train), ("test", splits.test), ("unlabelled", splits.unlabelled))
        }
    except ValueError:
        raise UserError(
            f"{splits.train.name} has images of {splits.train.channels} channels, the start takes {channels}: give "
            "such images, or --init none"
        ) from None
    return replace(splits, **parts)


def resize_of(images: Any) -> tuple[str, float | None]:
    """Interpolation and crop of a run's views, as environment.json has them; runs without a start have the usual."""
    found = images if isinstance(images, dict) else {}
    interpolation, crop = found.get("interpolation"), found.get("crop")
    known = interpolation in INTERPOLATIONS and isinstance(crop, float | int) and 0 < crop <= 1
    return (interpolation, float(crop)) if known else ("bicubic", None)  # pyright: ignore


def _classes(splits: Splits) -> int:
    if splits.train.classes:
        return len(splits.train.classes)
    return 1 + max(int(part.labels.max()) for part in (splits.train, splits.test) if part and part.labels is not None)


def image_size(splits: Splits) -> int:
    """The side of a view if nobody says otherwise: that of the images, 224 for photographs."""
    side = splits.train.size
    return PHOTOGRAPH if side is None else max(side)


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


def described(part: ImageSet | None) -> dict[str, Any] | None:
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
    before = run.made_with()
    for part in ("train", "unlabelled"):
        now, then = described(getattr(splits, part)) or {"images": 0}, before.get(part)
        if then is None or all(now.get(name) == value for name, value in then.items()):
            continue
        told = f"had {then['images']:,} images, now there are {now['images']:,}"
        if then["images"] == now["images"]:
            told = f"still has {now['images']:,} images, but others"
        raise UserError(
            f"the data are not those that {run.path} began with: its {part} part {told}; put the images back, or train "
            f"anew with --init {run.path}, which starts from what it has learned"
        )

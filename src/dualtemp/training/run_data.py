"""The data of a run: open it, check it against the settings, and require the same data when a run is resumed."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dualtemp import distributed
from dualtemp.config import Settings
from dualtemp.data import open_source
from dualtemp.data.augment.views import Views
from dualtemp.data.deep_gray import has_stacks, require_levels, with_levels
from dualtemp.data.images import ImageSet, Splits
from dualtemp.data.loading.gray_levels import MEASURED
from dualtemp.data.loading.image_order import UNIFORM
from dualtemp.data.loading.stacks import Levels, as_levels
from dualtemp.data.normalization import Normalization, earlier_normalization, normalization
from dualtemp.data.sources.catalogue import DEFAULT_VIEW_SIZE
from dualtemp.data.sources.folder import given_labels, refuse_misnamed_parts
from dualtemp.data.sources.label_file import LABEL_FILE
from dualtemp.data.sources.label_noise import with_label_noise
from dualtemp.data.sources.opening import absolute_source, image_folder, is_named_set
from dualtemp.data.sources.validation import held_out_for_validation, without_test_images
from dualtemp.data.training_data import TrainingData
from dualtemp.errors import UserError
from dualtemp.models.model_input import INTERPOLATIONS, ModelInput
from dualtemp.runs.folder import RunFolder

# The version, in environment.json, of how a run treats its images. 2: all copies of an image are on one side of a
# split, and the user's own color images are normalized by their own mean and std. 3: valid/ beside train/ is a test
# part, and unlabelled/ beside train/ alone is no class. 4: the user's own unlabeled images hold no copies of test ones.
TOGETHER, PARTS, APART = 2, 3, 4
SPLIT = APART


def split_of(environment: Mapping[str, Any] | None) -> int:
    """The version of a run's split; the newest if there is no environment."""
    return (environment.get("split") or 1) if environment else SPLIT


def known_environment(run: RunFolder, chosen: Settings) -> dict[str, Any]:
    """Read environment.json of a run that sees images again: if it began from a start, only the file knows its input.

    Without the file, the images of a run from scratch are treated as its data suggest. So are those of a run whose file
    has no entry for its start: earlier versions treated them so.
    """
    found = run.read_environment()
    if chosen.init is not None and (not found or ("start" in found and not _describes_images(found))):
        raise UserError(
            f"{run.environment} is missing or damaged: it says how {run.path} takes its images, which is as its start "
            "does; put it back"
        )
    return found


def _describes_images(environment: Mapping[str, Any]) -> bool:
    """Whether environment.json has the channels of the images, and a mean and a deviation for each."""
    images = environment.get("images") or {}
    return all(len(images.get(name) or ()) == images.get("channels") for name in ("mean", "std"))


def resolve_data(settings: Settings) -> Settings:
    """Replace `data` by the set's own name, or by an absolute path; find the labels.csv of a flat folder."""
    return settings.model_copy(update={"data": absolute_source(settings.data), "labels_from": _label_file(settings)})


def _label_file(settings: Settings) -> str | None:
    """The absolute path of the label file; None if there is none, or labels are ignored."""
    if settings.labels_from is not None:
        if not settings.labels:
            raise UserError(f"labels cannot be both ignored and read from {settings.labels_from}: give one of the two")
        return str(Path(settings.labels_from).expanduser().resolve())
    folder = image_folder(settings.data) if settings.labels else None
    return None if folder is None or given_labels(folder) is None else str(folder.resolve() / LABEL_FILE)


def refuse_misnamed_folders(settings: Settings) -> None:
    """Raise UserError if class folders look like misspelled parts of a set; call it on one process."""
    folder = image_folder(settings.data) if settings.labels else None
    if folder is not None:
        refuse_misnamed_parts(folder)


def open_data(settings: Settings, environment: Mapping[str, Any] | None = None) -> Splits:
    """Open the data of a run; with several processes, first on rank 0, which may have to download it.

    environment: environment.json of an existing run, whose split is kept; None for a new one.
    """

    def whole() -> Splits:
        split = split_of(environment)
        return open_source(
            settings.data,
            labels=settings.labels,
            together=split >= TOGETHER,
            labels_from=settings.labels_from,
            earlier_parts=split < PARTS,
        )

    if distributed.world_size() > 1:
        distributed.run_on_rank0(lambda: whole() and None)
    splits = whole()
    if split_of(environment) >= APART and not is_named_set(settings.data):
        splits = without_test_images(splits)
    there = len(splits.train)
    if settings.validate == "held-out":
        splits = held_out_for_validation(splits)
    if settings.subset is not None:
        amount = settings.subset
        if isinstance(amount, int) and len(splits.train) < amount <= there:
            amount = len(splits.train)  # the count fits the whole set, but part of it is held out
        splits = replace(splits, train=splits.train.subset(amount, settings.seed), unlabeled=None)
    if settings.levels == MEASURED and not has_stacks(splits):
        train, known = splits.train, levels_of((environment or {}).get("images"))
        splits = with_levels(splits, known or distributed.run_on_rank0(lambda: require_levels(train)))
    if settings.framework.learns_from_labels:
        _require_classes(settings, splits)
        if settings.get("label_noise"):
            splits = with_label_noise(splits, settings.options.noise, settings.options.label_noise, settings.seed)
    return splits


def _require_classes(settings: Settings, splits: Splits) -> None:
    """Raise UserError if a classifier cannot learn: no labels, one class, or no class with an image to hold out."""
    needs = ""
    if splits.train.labels is None:
        needs = f"labels, and {settings.data} has none"
    elif _classes(splits) < 2:
        needs = f"two classes or more, and {settings.data} has {_classes(splits)}"
    elif splits.test is None or splits.test.labels is None:
        needs = f"a class of two images or more, to hold one out, and {settings.data} has none"
    if needs:
        raise UserError(f"{settings.method} learning needs {needs}: choose another --method")


def run_normalization(settings: Settings, splits: Splits, environment: Mapping[str, Any] | None) -> Normalization:
    """Mean and std of a run's images: for an existing run, those that it recorded."""
    pixels = splits.train.pixels
    try:
        known = (environment or {})["images"]
        mean, std = (tuple(float(value) for value in known[name]) for name in ("mean", "std"))
        assert len(mean) == len(std) == splits.train.channels
        return mean, std
    except (TypeError, KeyError, ValueError, AssertionError):
        how = normalization if split_of(environment) >= TOGETHER else earlier_normalization
        return distributed.run_on_rank0(lambda: how(settings.data, pixels))


def training_data(
    settings: Settings,
    splits: Splits,
    environment: Mapping[str, Any] | None = None,
    start_input: ModelInput | None = None,
) -> TrainingData:
    """Prepare data for the trainer.

    environment: environment.json of an existing run; start_input: for a new run, the input of its start.
    """
    assert settings.image_size is not None
    splits = with_channels(splits, channels_of(environment, start_input), levels_of((environment or {}).get("images")))
    if start_input is not None:
        mean, std, resize = start_input.mean, start_input.std, (start_input.interpolation, start_input.crop)
    else:
        mean, std = run_normalization(settings, splits, environment)
        resize = resize_of((environment or {}).get("images"))
    views = Views(settings.recipe, settings.image_size, settings.seed, mean, std, *resize, splits.train.source.levels)
    labeled = splits.train.labels is not None and splits.test is not None and splits.test.labels is not None
    held_out = None
    if settings.stop_below_start and labeled:
        rest = held_out_for_validation(splits, "--stop-below-start")
        held_out, splits = rest.test, replace(splits, train=rest.train, unlabeled=rest.unlabeled)
    images = splits.train if settings.framework.learns_from_labels else splits.pretraining
    return TrainingData(
        images,
        splits.train if labeled else None,
        splits.test,
        views,
        classes=_classes(splits) if labeled else 0,
        held_out=held_out,
        unreadable={each.name: each.reason for each in splits.unreadable},
    )


def channels_of(environment: Mapping[str, Any] | None, start_input: ModelInput | None) -> int | None:
    """The channels that a start needs, or that an existing run recorded; None if neither is given."""
    if start_input is not None:
        return start_input.channels
    images = (environment or {}).get("images")
    found = images.get("channels") if isinstance(images, dict) else None
    return found if isinstance(found, int) else None


def with_channels(splits: Splits, channels: int | None, levels: Levels | None = None) -> Splits:
    """Convert all parts of a source to `channels` channels: a pretrained network takes gray images as three.

    levels: those of an existing run.
    """
    if channels is None or (channels == splits.train.channels and levels in (None, splits.train.source.levels)):
        return splits
    try:
        parts = {
            name: None if part is None else part.convert(channels, levels)
            for name, part in (("train", splits.train), ("test", splits.test), ("unlabeled", splits.unlabeled))
        }
    except ValueError:
        raise UserError(
            f"{splits.train.name} has images of {splits.train.channels} channels, the start takes {channels}: give "
            "such images, or --init none"
        ) from None
    return replace(splits, **parts)


def resize_of(images: Any) -> tuple[str, float | None]:
    """Interpolation and crop of a run's views, as in environment.json; the usual ones for runs without a start."""
    found = images if isinstance(images, dict) else {}
    interpolation, crop = found.get("interpolation"), found.get("crop")
    known = interpolation in INTERPOLATIONS and isinstance(crop, float | int) and 0 < crop <= 1
    return (interpolation, float(crop)) if known else ("bicubic", None)  # pyright: ignore


def levels_of(images: Any) -> Levels | None:
    """Levels of a run's images, as in environment.json; None if it needs none."""
    return as_levels(images.get("levels") if isinstance(images, dict) else None)


def _classes(splits: Splits) -> int:
    if splits.train.classes:
        return len(splits.train.classes)
    return 1 + max(int(part.labels.max()) for part in (splits.train, splits.test) if part and part.labels is not None)


def image_size(splits: Splits) -> int:
    """Default side of a view: that of the images, 224 if they are read from files."""
    side = splits.train.size
    return DEFAULT_VIEW_SIZE if side is None else max(side)


def check_batch(settings: Settings, data: TrainingData) -> None:
    """Raise UserError if the data cannot fill a batch, or if settings of the framework contradict each other."""
    if len(data.images) < 2:
        raise UserError(f"{settings.data} has {len(data.images)} image to train on: at least two are needed")
    if settings.batch > len(data.images):
        raise UserError(
            f"batch {settings.batch} is larger than the set of {len(data.images)} images: give --batch "
            f"{1 << (len(data.images).bit_length() - 1)} or fewer"
        )
    if settings.batch % distributed.world_size():
        raise UserError(f"batch {settings.batch} cannot be divided evenly among {distributed.world_size()} processes")
    if settings.order != UNIFORM and data.images.source.shards() is None:
        raise UserError(
            f"order {settings.order}: {settings.data} is in no shards, or is held in memory; leave the order out"
        )
    share = settings.batch // distributed.world_size()
    if share < 2:
        raise UserError(
            f"batch {settings.batch} leaves one image to a process: give --batch {2 * settings.batch} or more"
        )
    if settings.chunk is not None and share % settings.chunk == 1:
        raise UserError(f"chunk {settings.chunk} leaves one image of {share} over: give another --chunk")
    if problem := settings.options.contradiction():
        raise UserError(problem)


def describe_part(part: ImageSet | None) -> dict[str, Any] | None:
    """Size and identity of a part of the data, for environment.json; see `ImageSet.identity`.

    commonest: number of images in the largest class.
    """
    if part is None:
        return None
    about: dict[str, Any] = {}
    if part.labels is not None and (part.labels >= 0).any():
        about["commonest"] = int(part.labels[part.labels >= 0].bincount().max())
    return {"images": len(part), **part.identity(), **about}


def refuse_other_data(run: RunFolder, splits: Splits) -> None:
    """Raise UserError if images or labels are not those that a run recorded when it started.

    Corrected labels are accepted if the run uses labels only to measure, but other classes are not. Nor are corrected
    labels if the run holds out images to decide when to stop: the labels determine which ones.
    """
    before, parts = run.read_environment(), splits.parts()
    chosen = run.settings()
    free = () if chosen.framework.learns_from_labels or chosen.stop_below_start else ("labels", "commonest")
    for part in ("train", "unlabelled"):
        now, then = describe_part(parts.get(part)) or {"images": 0}, before.get(part)
        if then is None or all(now.get(name) == value for name, value in then.items() if name not in free):
            continue
        count = then.get("images") or 0
        change = f"had {count:,} images, now there are {now['images']:,}"
        if count == now["images"]:
            change = f"still has {now['images']:,} images, but others, or other labels"
        raise UserError(
            f"the data are not those that {run.path} started with: its {part} part {change}; put them back, or "
            f"train anew with --init {run.path}, which starts from what it has learned"
        )

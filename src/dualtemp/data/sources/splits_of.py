"""Turn listed images of any source into the parts of a set: gray or color, in one tensor or read one by one."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from dualtemp.data.image_source import ImageSource, TensorImages
from dualtemp.data.images import ImageSet, Splits, UnreadableImage
from dualtemp.data.loading.stacks import measured_levels
from dualtemp.data.sources.files_in_memory import load_files, survey
from dualtemp.errors import UserError


def splits_of(
    name: str,
    listed: Mapping[str, ImageSource],
    labels: Mapping[str, Tensor],
    classes: tuple[str, ...],
    left_out: Sequence[UnreadableImage],
    split: str,
) -> Splits:
    """Look at the headers, read small images of one size into a tensor, and put the parts together.

    listed: images by part ("train", "test", "unlabelled"); labels: of the parts that have labels; left_out: files known
    to be unreadable; split: a description of how the parts were separated.
    """
    place = listed["train"].place
    facts = survey(list(listed.values()))
    if not facts.readable:
        first = facts.unreadable[0]
        raise UserError(f"{place}: none of {facts.looked_at} image files can be read, the first {first}")
    if facts.stacks:
        listed = as_stacks(listed, facts.channels)
    sets: dict[str, ImageSet] = {}
    unreadable = list(left_out)
    for part, source in listed.items():
        images = source.convert(channels=facts.channels)
        known = labels.get(part)
        pixels, kept, lost = load_files(images, facts.common_size) if facts.common_size else (images, None, [])
        unreadable += lost
        if known is not None and kept is not None:
            known = known[torch.from_numpy(kept)]
        if facts.deep and kept is not None:  # so that they can be read again with other levels
            pixels = TensorImages(pixels, images.take(kept.tolist()))  # pyright: ignore[reportArgumentType]
        if len(pixels):
            sets[part] = ImageSet(name, pixels, known, classes if known is not None else (), facts.channels)
    if "train" not in sets:
        raise UserError(f"{place}: no training image can be read, the first {unreadable[0]}")
    return Splits(sets["train"], sets.get("test"), sets.get("unlabelled"), tuple(unreadable), split)


def as_stacks(listed: Mapping[str, ImageSource], channels: int) -> dict[str, ImageSource]:
    """Read the images of all parts as stacks of `channels` channels, with levels measured on the training part."""
    train = listed["train"]

    def read(i: int) -> np.ndarray | None:
        with suppress(UnreadableImage):
            found = train.stored_values(i)
            return found if found.shape[-1] == channels else None
        return None

    levels = measured_levels(len(train), read)
    if levels is None:
        raise UserError(f"{train.place}: no image of {channels} channels can be read of its training part")
    try:
        return {part: source.convert(levels=levels) for part, source in listed.items()}
    except (TypeError, ValueError):  # a plugin's source whose `convert` takes no levels
        raise UserError(
            f"{train.place}: images of {channels} channels are read from folders and shards alone"
        ) from None

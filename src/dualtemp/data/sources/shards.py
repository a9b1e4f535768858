"""Open shards as a set: tar files in WebDataset's layout or Parquet files, alone, in a folder, or named by braces.

SHARDS/train-*.tar  SHARDS/test-*.tar      or folders train/ and test/; val, validation; unlabelled beside them
SHARDS/*.tar                               a tenth of each class is held out
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dualtemp.data.images import Splits, UnreadableImage
from dualtemp.data.shards.indexing import indexed
from dualtemp.data.shards.labels import Labels, read_labels
from dualtemp.data.shards.locations import ENDINGS, Division, divide, find_shards, looks_like_shards
from dualtemp.data.shards.shard_images import ShardImages
from dualtemp.data.shards.shard_index import ShardIndex
from dualtemp.data.sources.copies import copies
from dualtemp.data.sources.folder import name_keys
from dualtemp.data.sources.held_out import held_out
from dualtemp.data.sources.registry import source
from dualtemp.data.sources.splits_of import splits_of
from dualtemp.errors import UserError
from dualtemp.quantities import counted


@source(".parquet")
@source(".tar")
def open_shards(path: str | Path, *, labels: bool = True, together: bool = True) -> Splits:
    """Open shards: one file, a folder, braces (shards/{000..127}.tar), a pattern (shards/*.tar), an address, hf:NAME.

    labels=False ignores their labels; together=False holds out by names alone.
    """
    division = divide(find_shards(path))
    index = indexed([place for places in division.shards.values() for place in places])
    left_out = [UnreadableImage(file.name, file.trouble) for file in index.files if file.trouble]
    if not len(index):
        why = f", the first {left_out[0]}" if left_out else "; expected members that end as images do, such as .jpg"
        raise UserError(f"{path}: no image in {counted(len(index.files), 'shard')}{why}")
    known = read_labels(index, str(path)) if labels else None
    parts, rows = _parts(str(path), index, division)
    split = ""
    test = _test_word(division, rows, known)
    chosen = {"train": next(iter(rows)), "test": test, "unlabelled": division.unlabeled}
    if chosen["train"] not in parts:
        why = f", the first {left_out[0]}" if left_out else "; expected members that end as images do, such as .jpg"
        raise UserError(f"{path}: no image in its train shards{why}")
    sources = {part: parts[word] for part, word in chosen.items() if word in parts}
    if test is None:
        sources, split = _hold_out(sources, known, together)
    else:
        split = f"shards of train and {test}"
        unused = [word for word in division.tests if word != test and len(rows[word])] + list(division.unused)
        split += f"; {' and '.join(unused)} not used" if unused else ""
    given: dict[str, Tensor] = {}
    if known is not None:
        labeled = {part: each for part, each in sources.items() if part != "unlabelled"}
        given = {part: _labels(str(path), part, each, known) for part, each in labeled.items()}
        _check_classes(str(path), given, known)
    return splits_of(_name(path), sources, given, known.classes if known else (), left_out, split)


def _name(path: str | Path) -> str:
    at = Path(path)
    if looks_like_shards(str(path)) and not at.exists():
        return at.name if at.suffix not in ENDINGS else at.parent.name
    at = at.resolve()
    return at.name if at.is_dir() else at.stem if at.exists() else at.parent.name


def _parts(place: str, index: ShardIndex, division: Division) -> tuple[dict[str, ShardImages], dict[str, np.ndarray]]:
    """The images of each part, by its word in the division, and their rows in the index."""
    words = [word for word, places in division.shards.items() for _ in places]
    prefixes = tuple(f"{word}/" if word else "" for word in words)
    by_shard = np.repeat(np.arange(len(words)), index.counts)
    whole = ShardImages(index, np.arange(len(index)), prefixes, place)
    rows = {
        word: np.flatnonzero(np.isin(by_shard, [i for i, each in enumerate(words) if each == word]))
        for word in division.shards
    }
    if any(_some_alike(whole.take(found.tolist())) for found in rows.values()):
        # Numbering starts again in each shard: put its name before those of its images.
        stems = [file.name.rsplit(".", 1)[0] for file in index.files]
        named = tuple(f"{word}{stem.removeprefix(word)}/" for word, stem in zip(prefixes, stems, strict=True))
        whole = replace(whole, prefixes=named)
    return {word: whole.take(found.tolist()) for word, found in rows.items() if len(found)}, rows


def _some_alike(images: ShardImages) -> bool:
    keys = name_keys(images.names)
    return len(np.unique(keys)) < len(keys)


def _test_word(division: Division, rows: dict[str, np.ndarray], known: Labels | None) -> str | None:
    """The word of the part for measuring: the first that has labels. ImageNet's test part, for one, has none."""
    there = [word for word in division.tests if len(rows[word])]
    if known is None:
        return next(iter(there), None)
    fitting = [word for word in there if bool((known.of_rows[rows[word]] >= 0).any())]
    return next(iter(fitting or there), None)


def _labels(place: str, part: str, images: ShardImages, known: Labels) -> Tensor:
    found = known.of_rows[images.rows]
    if (missing := np.flatnonzero(found < 0)).size:
        raise UserError(
            f"{place}: {missing.size:,} images of the {part} part have no label ('{images.names[int(missing[0])]}' is "
            "the first), others have; give every image a .cls file, or ask for no labels"
        )
    return torch.from_numpy(found.astype(np.int64))


def _check_classes(place: str, given: dict[str, Tensor], known: Labels) -> None:
    if "test" not in given:
        return
    unseen = np.setdiff1d(given["test"].numpy(), given["train"].numpy())
    if len(unseen):
        raise UserError(
            f"{place}: class '{known.classes[int(unseen[0])]}' is in the test part only; expected every class in the "
            "train part too, or ask for no labels"
        )


def _hold_out(
    sources: dict[str, ShardImages], known: Labels | None, together: bool
) -> tuple[dict[str, ShardImages], str]:
    """Hold out a tenth of the train part; drop unlabeled images that are copies of held-out images."""
    whole, more = sources["train"], sources.get("unlabelled")
    count = len(whole)
    alike = copies([whole, *([more] if more else [])]) if together else np.arange(count + len(more or ()))
    groups = np.zeros(count, np.int64) if known is None else known.of_rows[whole.rows].clip(min=0).astype(np.int64)
    # Hash names without train/, as for the files of a folder.
    test = held_out(groups, name_keys([name.removeprefix("train/") for name in whole.names]), alike[:count])
    if not test.any():
        return sources, "no image held out: too few"
    split = "a tenth held out, balanced, by a hash of the file name"
    if (twice := count - len(np.unique(alike[:count]))) > 0:
        split += f"; {twice:,} {'name' if twice == 1 else 'names'} of images that have another stay with it"
    parts = {"train": whole.take(np.flatnonzero(~test).tolist()), "test": whole.take(np.flatnonzero(test).tolist())}
    if more is not None:
        left = more.take(np.flatnonzero(~np.isin(alike[count:], alike[:count][test])).tolist())
        parts |= {"unlabelled": left} if len(left) else {}
    return parts, split

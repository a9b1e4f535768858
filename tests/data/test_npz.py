import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dualtemp.data.sources.npz import open_npz, read_npz, write_npz
from dualtemp.data.sources.opening import open_source
from dualtemp.errors import UserError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (30, 6, 5, 3), dtype=np.uint8)
LABELS = np.arange(30) % 3


def pixels_of(images: object) -> np.ndarray:
    assert isinstance(images, torch.Tensor)
    return images.numpy()


@pytest.mark.parametrize("test", [True, False])
def test_files_of_parts_that_are_not_read_are_named(test: bool, tmp_path: Path) -> None:
    for name in ("train", "val", "unlabeled", *(["test"] if test else [])):
        np.savez(tmp_path / f"{name}.npz", images=IMAGES, labels=LABELS)
    split = open_source(tmp_path).split
    assert split.endswith("; val.npz and unlabeled.npz not used")
    assert split.startswith("train.npz and test.npz" if test else "a tenth held out")


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
def test_any_number_of_channels_comes_out_channel_first(tmp_path: Path, channels: int) -> None:
    images = RNG.integers(0, 256, (30, 6, 5, channels), dtype=np.uint8)
    np.savez(tmp_path / "train.npz", images=images)
    np.savez(tmp_path / "test.npz", images=images[:4])
    splits = open_source(tmp_path)
    assert splits.train.channels == channels
    assert (pixels_of(splits.train.pixels) == images.transpose(0, 3, 1, 2)).all()
    assert len(splits.test or ()) == 4


def test_images_without_a_channel_axis_are_grey(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", images=IMAGES[..., 0])
    splits = open_source(str(tmp_path / "x.npz"))
    assert splits.train.channels == 1
    assert splits.train.labels is None
    assert splits.train.name == "x"


def test_one_file_holds_out_a_balanced_tenth(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=np.arange(200, dtype=np.uint8)[:, None, None], labels=np.arange(200) % 4)
    splits = open_npz(tmp_path / "x.npz")
    assert splits.test is not None
    assert splits.test.labels is not None
    assert splits.test.labels.bincount().tolist() == [5, 5, 5, 5]
    seen = np.concatenate([pixels_of(part.pixels).ravel() for part in (splits.train, splits.test)])
    assert sorted(seen.tolist()) == list(range(200))
    again = open_npz(tmp_path / "x.npz")
    assert again.test is not None
    assert again.test.fingerprint == splits.test.fingerprint


def test_classes_come_from_either_file_or_are_the_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", images=IMAGES, labels=LABELS.astype(np.uint8))
    np.savez(tmp_path / "test.npz", images=IMAGES[:2], labels=LABELS[:2], classes=np.array(["a", "b", "ç"]))
    splits = open_npz(tmp_path)
    assert splits.test is not None
    assert splits.train.classes == splits.test.classes == ("a", "b", "ç")
    (tmp_path / "test.npz").unlink()
    assert open_npz(tmp_path).train.classes == ("0", "1", "2")


def test_an_unlabelled_file_joins_training(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", images=IMAGES, labels=LABELS)
    np.savez(tmp_path / "test.npz", images=IMAGES, labels=LABELS)
    np.savez(tmp_path / "unlabelled.npz", images=IMAGES[:7], labels=LABELS[:7])
    both = open_npz(tmp_path).pretraining
    assert both.labels is not None
    assert both.labels.tolist() == [*LABELS.tolist(), *[-1] * 7]
    assert (pixels_of(both.pixels)[30:] == IMAGES[:7].transpose(0, 3, 1, 2)).all()


def test_what_is_written_is_read_back_and_other_arrays_are_not_touched(tmp_path: Path) -> None:
    write_npz(tmp_path / "x.npz", IMAGES, LABELS, ("a", "b", "c"))
    back = read_npz(tmp_path / "x.npz")
    assert (back.images == IMAGES).all()
    assert back.labels is not None
    assert (back.labels == LABELS).all()
    assert back.classes == ("a", "b", "c")
    np.savez(tmp_path / "y.npz", images=IMAGES, extra=np.array([{}], dtype=object))
    assert read_npz(tmp_path / "y.npz").labels is None


class Bomb:
    """Unpickling this would leave a trace."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


def test_nothing_is_ever_unpickled(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    np.savez(tmp_path / "x.npz", images=IMAGES, labels=np.array([Bomb(trace)] * 30, dtype=object))
    with pytest.raises(UserError, match="Python objects"):
        open_npz(tmp_path / "x.npz")
    assert not trace.exists()


BAD_ARRAYS = {
    "no images": ({"pictures": IMAGES}, r"no `images` \(holds pictures\)"),
    "float images": ({"images": IMAGES / 255}, "is float64"),
    "one image": ({"images": IMAGES[0, 0]}, r"uint8 \(5, 3\)"),
    "no image": ({"images": IMAGES[:0]}, r"uint8 \(0, 6, 5, 3\)"),
    "channels first": ({"images": IMAGES.transpose(0, 3, 1, 2).repeat(5, 3)}, "looks like"),
    "labels too short": ({"images": IMAGES, "labels": LABELS[:4]}, r"int64 \(4,\)"),
    "labels as floats": ({"images": IMAGES, "labels": LABELS / 2}, "`labels` is float64"),
    "labels as names": ({"images": IMAGES, "labels": LABELS.astype(str)}, "expected whole numbers"),
    "one-hot labels": ({"images": IMAGES, "labels": np.eye(3, dtype=int)[LABELS]}, r"expected whole numbers \(30,\)"),
    "negative label": ({"images": IMAGES, "labels": LABELS - 1}, "`labels` has -1"),
    "huge label": ({"images": IMAGES, "labels": LABELS.astype(np.uint64) + 2**63}, "`labels` has 92233"),
    "too few classes": ({"images": IMAGES, "labels": LABELS, "classes": np.array(["a"])}, "`labels` has 2"),
    "classes twice": ({"images": IMAGES, "labels": LABELS, "classes": np.array(["a", "b", "a"])}, "'a' twice"),
    "classes as numbers": ({"images": IMAGES, "labels": LABELS, "classes": np.arange(3)}, "expected a list of names"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_arrays_that_do_not_fit_are_refused_in_one_line(tmp_path: Path, case: str) -> None:
    arrays, message = BAD_ARRAYS[case]
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UserError, match=message) as raised:
        open_source(tmp_path / "x.npz")
    assert "\n" not in str(raised.value)
    assert "x.npz" in str(raised.value)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ({"images": IMAGES[:, :4]}, "expected the same"),
        ({"images": IMAGES}, "no `labels`, though train.npz has some"),
        ({"images": IMAGES, "labels": LABELS, "classes": np.array(["x", "y", "z"])}, "different `classes`"),
        ({"images": IMAGES, "labels": LABELS + 1, "classes": np.array(["a", "b", "c", "d"])}, "different `classes`"),
        ({"images": IMAGES, "labels": LABELS + 1}, "`labels` has 3"),
    ],
)
def test_train_and_test_must_fit_together(tmp_path: Path, test: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "train.npz", images=IMAGES, labels=LABELS, classes=np.array(["a", "b", "c"]))
    np.savez(tmp_path / "test.npz", **test)
    with pytest.raises(UserError, match=message):
        open_npz(tmp_path)


def test_a_class_that_is_only_tested_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", images=IMAGES, labels=LABELS % 2)
    np.savez(tmp_path / "test.npz", images=IMAGES, labels=LABELS)
    with pytest.raises(UserError, match=r"class '2' is not in train\.npz"):
        open_npz(tmp_path)


def test_a_header_that_promises_too_much_allocates_nothing(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (2**40, 2**10, 2**10, 3)}
    )
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("images.npy", header.getvalue() + b"abc")
    with pytest.raises(UserError, match="its header says"):
        read_npz(tmp_path / "x.npz")


def whole_file() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, images=IMAGES[:4], labels=LABELS[:4], classes=np.array(["a", "b", "c"]))
    return file.getvalue()


WHOLE = whole_file()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_file_is_refused_in_one_line_or_read_whole(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
    path = tmp_path / "x.npz"
    path.write_bytes(data.draw(st.one_of(st.just(bytes(content[:end])), st.binary(max_size=80))))
    try:
        splits = open_npz(path)
    except UserError as error:
        line = str(error)
    else:  # a byte that matters to nobody; the checksum guards the pixels
        assert len(splits.train) + len(splits.test or ()) == 4
        return
    assert "\n" not in line
    assert "x.npz" in line

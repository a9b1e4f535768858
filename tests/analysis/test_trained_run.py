"""What is read from a run folder: q and keys of every framework, dictionaries, other data, broken files."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dualtemp.analysis.trained_run import open_trained_run
from dualtemp.data import open_source
from dualtemp.data.augment.views import Views
from dualtemp.errors import UserError
from dualtemp.frameworks import build_framework
from dualtemp.runs import checkpoint
from dualtemp.runs.folder import RunFolder

RunOf = Callable[[str], Path]
CONTRASTED = ("moco", "simmoco", "simco", "simclr", "byol", "simsiam")


def rebuilt(path: Path) -> Any:
    """The framework from the checkpoint, without the analysis."""
    method = build_framework(RunFolder(path).settings(), 1, 10)
    method.load_state_dict(checkpoint.load(checkpoint.checkpoints(path / "checkpoints")[-1]).method)
    return method.train()


@pytest.mark.parametrize("method", CONTRASTED)
def test_anchors_and_keys_are_what_the_framework_compares_in_a_step(run_of: RunOf, method: str) -> None:
    run = open_trained_run(run_of(method))
    batch = next(iter(run.anchors(1)))
    framework = rebuilt(run_of(method))
    pixels = open_source("digits").train.subset(128, seed=0).pixels
    assert isinstance(pixels, torch.Tensor)
    first, second = (
        run.data.views(pixels[batch.index], batch.index, 1, view) for view in (0, 1)
    )  # an epoch that was not trained on
    torch.testing.assert_close(batch.views, (first, second))
    with torch.no_grad():
        query = framework.network(first)
        key = getattr(framework, "key_network", framework.network)(second)
    torch.testing.assert_close(batch.q, query.prediction if method in ("byol", "simsiam") else query.projection)
    torch.testing.assert_close(batch.k_pos, key.projection)
    if method in ("moco", "simmoco", "byol"):  # the key encoder is not the query encoder
        assert not torch.allclose(batch.k_pos, framework.network(second).projection)


def test_looking_changes_nothing(run_of: RunOf) -> None:
    run = open_trained_run(run_of("simco"))
    before = {name: value.clone() for name, value in run.method.state_dict().items() if "num_batches" not in name}
    one, other = (next(iter(run.anchors(1))) for _ in range(2))
    torch.testing.assert_close(one.q, other.q, rtol=0, atol=0)
    _ = run.keys
    after = run.method.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_mocos_keys_are_those_it_holds(run_of: RunOf) -> None:
    run = open_trained_run(run_of("moco"))
    held = rebuilt(run_of("moco")).dictionaries[0]
    assert (held.seen, len(held)) == (128, 96)  # the ring is full and its oldest key is at 128 % 96
    expected = torch.cat([held.keys[32:], held.keys[:32]])
    torch.testing.assert_close(run.keys, expected, rtol=0, atol=0)
    torch.testing.assert_close(run.dictionary(5), expected, rtol=0, atol=0)


@pytest.mark.parametrize("method", ["simco", "simmoco"])
def test_a_dictionary_is_made_of_other_images_as_long_as_there_are_enough(run_of: RunOf, method: str) -> None:
    run = open_trained_run(run_of(method))
    assert run.max_keys == 128
    whole = list(run.key_batches(10_000))
    index = torch.cat([batch.index for batch in whole])
    assert sorted(index.tolist()) == list(range(128))
    assert not set(index[-96:].tolist()) & set(next(iter(run.anchors(1))).index.tolist())
    keys = torch.cat([batch.k for batch in whole])
    torch.testing.assert_close(keys.norm(dim=1), torch.ones(128))
    for size in (1, 31, 32, 33, 100):
        torch.testing.assert_close(run.dictionary(size), keys[-size:], rtol=0, atol=0)
        assert torch.cat([batch.index for batch in run.key_batches(size)]).tolist() == index[-size:].tolist()
    views = {int(i): view for batch in whole for i, view in zip(batch.index, batch.view, strict=True)}
    for batch in run.anchors(4):  # no key is an anchor's positive, also of its own image
        assert not any(torch.equal(views[int(i)], view) for i, view in zip(batch.index, batch.views[1], strict=True))
    last = whole[-1]
    with torch.no_grad():
        framework = rebuilt(run_of(method))
        key = getattr(framework, "key_network", framework.network)(last.view).projection
    torch.testing.assert_close(last.k, key / key.norm(dim=1, keepdim=True))


def test_a_supervised_run_has_no_anchors(run_of: RunOf) -> None:
    run = open_trained_run(run_of("supervised"))
    assert not run.has_anchors
    for look in (lambda: next(run.anchors(1)), lambda: run.keys, lambda: run.temperatures):
        with pytest.raises(UserError, match="a supervised run, which has no anchors: give a run of moco"):
            look()


@pytest.mark.parametrize(
    ("method", "expected"), [("moco", (0.1, 0.1)), ("simco", (0.1, 1.0)), ("simclr", (0.1, 0.1)), ("byol", (0.1, 0.1))]
)
def test_temperatures_are_those_of_the_loss(run_of: RunOf, method: str, expected: tuple[float, float]) -> None:
    assert open_trained_run(run_of(method)).temperatures == expected


def test_a_damaged_checkpoint_is_passed_over_and_left_alone(run_of: RunOf, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run_of("simco"), copy)
    (whole,) = checkpoint.checkpoints(copy / "checkpoints")
    damaged = copy / "checkpoints" / "step-0000009999.ckpt"
    damaged.write_bytes(whole.read_bytes()[:-7])
    assert open_trained_run(copy).step == 4
    assert damaged.exists()
    whole.unlink()
    with pytest.raises(UserError, match=r"no checkpoint of .* can be read: step-0000009999\.ckpt is damaged"):
        open_trained_run(copy)
    damaged.unlink()
    with pytest.raises(UserError, match="no checkpoint yet"):
        open_trained_run(copy)


def test_other_data_are_seen_as_the_run_saw_its_own(run_of: RunOf, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (90, 12, 12, 1), dtype=np.uint8)
    np.savez(tmp_path / "other.npz", images=pixels)
    run, own = open_trained_run(run_of("moco"), data=str(tmp_path / "other.npz")), open_trained_run(run_of("moco"))
    assert run.data.views.size == 8
    assert (run.data.views.mean, run.data.views.std) == (own.data.views.mean, own.data.views.std)
    assert not run.has_own_keys  # the run's dictionary is of other images
    assert run.dictionary(40).shape == (40, 128)
    batch = next(iter(run.anchors(1)))
    views = Views("paper", 8, 0, own.data.views.mean, own.data.views.std)
    shown = run.data.images.pixels[batch.index]  # pyright: ignore
    torch.testing.assert_close(batch.views[1], views(shown, batch.index, 1, 1))


def test_other_channels_are_refused_in_one_line(run_of: RunOf, tmp_path: Path) -> None:
    np.savez(tmp_path / "color.npz", images=np.zeros((40, 8, 8, 3), np.uint8))
    expected = r"color.npz has images with 3 channels, but .* was trained on 1: give images with 1"
    with pytest.raises(UserError, match=expected):
        open_trained_run(run_of("simco"), data=tmp_path / "color.npz")


def test_one_image_is_too_few(run_of: RunOf, tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", images=np.zeros((1, 8, 8, 1), np.uint8))
    with pytest.raises(UserError, match="anchors need at least two"):
        next(open_trained_run(run_of("simco"), data=tmp_path / "one.npz").anchors(1))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flat folder of files of different sizes, each of one colour of its own, and two that are no images."""
    folder = tmp_path_factory.mktemp("files")
    for i in range(22):
        Image.new("RGB", (20 + i, 24), (10 * i, 255 - 10 * i, 128)).save(folder / f"{i:02}.png")
    for name in ("05b.png", "11b.jpg"):
        (folder / name).write_bytes(b"no image")
    return folder


def test_files_that_cannot_be_read_are_left_out_and_views_are_of_the_image_that_is_named(
    files: Path, tmp_path: Path, train_run: Callable[..., Path]
) -> None:
    values = {"data": str(files), "image_size": 16, "subset": None, "batch": 6, "recipe": "weak"}
    run = open_trained_run(train_run(tmp_path / "run", **values))
    names, seen = run.data.images.pixels.names, set()  # pyright: ignore
    for batch in run.anchors(10):
        assert len(batch.q) == len(batch.index) == len(batch.views[0])
        for place, i in enumerate(batch.index.tolist()):
            colour = int(str(names[i])[:2]) * 10 / 255
            for view in batch.views:
                assert (run.data.views.unnormalize(view[place : place + 1])[0, 0] - colour).abs().max() < 0.01
            seen.add(names[i])
    assert seen
    assert not seen & {"05b.png", "11b.jpg"}
    assert 0 < len(run.keys) <= run.max_keys
    assert [len(run.dictionary(size)) for size in (1, 7, 13)] == [1, 7, 13]
    assert torch.equal(run.dictionary(7), run.keys[-7:])
    batches = [batch.index.tolist() for batch in run.anchors(10)]
    assert {len(batch) for batch in batches} == {6}  # r_+ of fewer would have less entropy
    drawn = [i for i in run._order.tolist() if names[i] not in ("05b.png", "11b.jpg")]
    assert [i for batch in batches for i in batch] == drawn[: 6 * len(batches)]
    assert len(batches) == len(drawn) // 6
    few = next(iter(run.anchors(1, size=100)))  # all that can be read
    assert len(few.index) == min(6, len(drawn))

"""The loader: the same batches for any number of processes and from any position; workers die and files vanish."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from command_processes import PATIENCE
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dualtemp.data.augment.philox import replacements
from dualtemp.data.augment.views import Views
from dualtemp.data.image_source import to_tensor
from dualtemp.data.images import FileImages, ImageSet
from dualtemp.data.loading import workers as reading
from dualtemp.data.loading.crop_files import clean_crop, resize
from dualtemp.data.loading.loader import Loader, default_workers, evaluation_batches
from dualtemp.errors import UserError
from dualtemp.torchvision_operators import declare_missing_operators

declare_missing_operators()
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as reference  # noqa: E402

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
BICUBIC = v2.InterpolationMode.BICUBIC


def views(size: int = 16, seed: int = 0, channels: int = 3) -> Views:
    return Views("paper", size, seed, MEAN[:channels], STD[:channels])


def in_memory(count: int = 50) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 3, 16, 16), dtype=torch.uint8, generator=generator)
    return ImageSet("noise", pixels, torch.arange(count) % 7, tuple("abcdefg"))


@pytest.fixture
def photographs(tmp_path: Path) -> ImageSet:
    """40 PNG files of different shapes, smooth in colour, each of its own mean."""
    generator = np.random.default_rng(0)
    for i in range(40):
        height, width = generator.integers(20, 60, 2)
        coarse = Image.fromarray(generator.integers(0, 256, (4, 5, 3), dtype=np.uint8))
        coarse.resize((int(width), int(height)), Image.Resampling.BICUBIC).save(tmp_path / f"{i:02d}.png")
    names = tuple(f"{i:02d}.png" for i in range(40))
    return ImageSet("photographs", FileImages(tmp_path, names), torch.arange(40) % 4, tuple("abcd"))


def joined(batches) -> tuple[torch.Tensor, torch.Tensor]:
    seen = list(batches)
    return torch.cat([b.index for b in seen]), torch.cat([torch.cat(b.views, 1) for b in seen])


def test_an_epoch_shows_every_image_once_up_to_whole_batches():
    loader = Loader(in_memory(), views(), 16)
    batches = list(loader.batches(0))
    assert loader.steps == len(batches) == 3
    index = torch.cat([batch.index for batch in batches])
    assert len(set(index.tolist())) == 48
    for batch in batches:
        assert batch.labels is not None
        assert torch.equal(batch.labels, batch.index % 7)
        assert batch.views[0].shape == batch.views[1].shape == (16, 3, 16, 16)
        assert (batch.views[0] != batch.views[1]).any()
    assert not torch.equal(index, torch.cat([batch.index for batch in loader.batches(1)]))


def test_the_views_in_a_batch_are_the_views_of_its_images():
    images, both = in_memory(), views()
    assert isinstance(images.pixels, torch.Tensor)
    for batch in Loader(images, both, 10).batches(3):
        for view in (0, 1):
            assert torch.equal(batch.views[view], both(images.pixels[batch.index], batch.index, 3, view))


@given(st.integers(0, 5), st.integers(0, 12), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_any_position_of_any_epoch_can_be_entered_directly(epoch, start, batch):
    loader = Loader(in_memory(13), views(), batch)
    start = min(start, loader.steps)
    whole = list(loader.batches(epoch))[start:]
    again = list(loader.batches(epoch, start))
    assert len(whole) == len(again)
    for a, b in zip(whole, again, strict=True):
        assert torch.equal(a.index, b.index)
        assert torch.equal(a.views[0], b.views[0])
        assert torch.equal(a.views[1], b.views[1])


@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_see_disjoint_parts_of_the_same_global_batches(world):
    alone = list(Loader(in_memory(), views(), 12).batches(2, 1))
    ranks = [list(Loader(in_memory(), views(), 12, rank=r, world=world).batches(2, 1)) for r in range(world)]
    for step, whole in enumerate(alone):
        assert torch.equal(torch.cat([rank[step].index for rank in ranks]), whole.index)
        torch.testing.assert_close(torch.cat([rank[step].views[1] for rank in ranks]), whole.views[1])


def test_a_set_without_labels_has_none_in_its_batches():
    images = ImageSet("bare", in_memory().pixels)
    assert next(iter(Loader(images, views(), 4).batches(0))).labels is None
    assert next(iter(evaluation_batches(images, views()))).labels is None


def test_impossible_batches_are_refused_with_one_line():
    with pytest.raises(UserError, match="noise has 50 images: give 1 to 50"):
        Loader(in_memory(), views(), 51)
    with pytest.raises(UserError, match="give a multiple of 3"):
        Loader(in_memory(), views(), 16, world=3)
    with pytest.raises(ValueError, match="steps 0 to 3"):
        Loader(in_memory(), views(), 16).batches(0, 4)
    assert 1 <= default_workers() <= 8


def test_photographs_are_cropped_as_torchvision_crops_them(photographs):
    both = views(24)
    assert isinstance(photographs.pixels, FileImages)
    batch = next(iter(Loader(photographs, both, 40, workers=0).batches(1)))
    images = [to_tensor(photographs.pixels.open(i)) for i in batch.index.tolist()]
    heights, widths = (torch.tensor([image.shape[d] for image in images]) for d in (1, 2))
    for view in (0, 1):
        boxes = both.crop_boxes(batch.index, 1, view, heights, widths).tolist()
        cropped = torch.stack(
            [
                reference.resized_crop(image, *box, size=[24, 24], interpolation=BICUBIC)
                for image, box in zip(images, boxes, strict=True)
            ]
        )
        assert torch.equal(batch.views[view], both.after_crop(cropped, batch.index, 1, view))


@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_change_nothing(photographs, workers):
    expected = joined(Loader(photographs, views(), 8, workers=0).batches(1, 1))
    with Loader(photographs, views(), 8, workers=workers) as loader:
        for _ in range(2):  # the same workers serve again
            index, pixels = joined(loader.batches(1, 1))
            assert torch.equal(index, expected[0])
            assert torch.equal(pixels, expected[1])
        assert loader.problems == {}


@pytest.mark.parametrize(("workers", "count"), [(0, 3), (2, 4), (0, 1)])
def test_a_framework_has_as_many_views_of_photographs_as_it_asks_for(photographs, workers, count):
    drawn = views(seed=5)
    with Loader(photographs, drawn, 8, workers=workers, count=count) as loader:
        for batch in loader.batches(1):
            assert len(batch.views) == count
            for row, i in enumerate(batch.index.tolist()):
                image, number = photographs.source.pixels(i), batch.index[row : row + 1]
                height, width = (torch.tensor([side]) for side in image.shape[1:])
                for view in range(count):
                    top, left, high, wide = drawn.crop_boxes(number, 1, view, height, width)[0].tolist()
                    crop = reference.resized_crop(image, top, left, high, wide, [16, 16], BICUBIC, antialias=True)
                    torch.testing.assert_close(
                        batch.views[view][row : row + 1], drawn.after_crop(crop[None], number, 1, view)
                    )


def test_ranks_share_photographs_too(photographs):
    index, pixels = joined(Loader(photographs, views(), 8, workers=0).batches(0))
    ranks = [joined(Loader(photographs, views(), 8, rank=r, world=2, workers=0).batches(0)) for r in (0, 1)]
    for step in range(5):
        mine, share = slice(8 * step, 8 * step + 8), slice(4 * step, 4 * step + 4)
        assert torch.equal(torch.cat([rank[0][share] for rank in ranks]), index[mine])
        torch.testing.assert_close(torch.cat([rank[1][share] for rank in ranks]), pixels[mine])


def test_an_epoch_left_in_the_middle_does_not_disturb_the_next(photographs):
    expected = joined(Loader(photographs, views(), 4, workers=0).batches(5))
    with Loader(photographs, views(), 4, workers=2) as loader:
        for step, _ in enumerate(loader.batches(4)):
            if step == 2:
                break
        assert torch.equal(joined(loader.batches(5))[1], expected[1])


class SlowAtFirst(FileImages):
    """Files that take long to open as long as a file `slow` lies beside them."""

    def open(self, i: int) -> Image.Image:
        if (self.root / "slow").exists():
            time.sleep(0.1)
        return super().open(i)


def test_what_an_abandoned_epoch_still_reads_never_reaches_the_next(photographs):
    expected = joined(Loader(photographs, views(), 4, workers=0).batches(5))
    files = SlowAtFirst(photographs.pixels.root, photographs.pixels.names)
    (files.root / "slow").touch()
    with Loader(ImageSet("slow", files), views(), 4, workers=2) as loader:
        abandoned = loader.batches(4)
        next(abandoned)
        time.sleep(0.05)  # the workers are inside the next batches now
        (files.root / "slow").unlink()
        del abandoned
        seen = []
        for batch in loader.batches(5):
            seen.append(batch)
            time.sleep(0.05)  # prepared batches wait, where a late writer would find them
    assert torch.equal(joined(seen)[1], expected[1])


def test_two_epochs_at_once_are_refused(photographs):
    with Loader(photographs, views(), 4, workers=0) as loader:
        first = loader.batches(0)
        next(first)
        with pytest.raises(RuntimeError, match="already reading"):
            next(loader.batches(1))


def workers_of(loader: Loader) -> list[int]:
    assert loader._reader is not None
    assert loader._reader._pool is not None
    return loader._reader._pool.pids


def test_a_killed_worker_is_replaced_and_nothing_is_lost(photographs):
    expected = joined(Loader(photographs, views(), 4, workers=0).batches(0))
    with Loader(photographs, views(), 4, workers=2) as loader:
        batches, seen = loader.batches(0), []
        for step in range(10):
            if step in (2, 6):
                with suppress(ProcessLookupError):  # on a busy machine, the one of step 2 is not replaced yet
                    os.kill(workers_of(loader)[0], signal.SIGKILL)
                time.sleep(0.05)
            seen.append(next(batches))
        index, pixels = joined(seen)
    assert torch.equal(index, expected[0])
    assert torch.equal(pixels, expected[1])


class KillsItsProcess(FileImages):
    """Files of which one is deadly to open, as a decoder that runs out of memory is."""

    def open(self, i: int) -> Image.Image:
        if i == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().open(i)


def test_an_image_that_kills_every_worker_ends_with_one_line(photographs):
    deadly = KillsItsProcess(photographs.pixels.root, photographs.pixels.names)
    images = ImageSet("deadly", deadly, photographs.labels, photographs.classes)
    with Loader(images, views(), 40, workers=2) as loader, pytest.raises(UserError, match="killed 3 times") as caught:
        list(loader.batches(0))
    assert "\n" not in str(caught.value)
    assert "fewer than 2 workers" in str(caught.value)


@pytest.mark.parametrize("stopped", [False, True], ids=["all run", "one is stopped"])
def test_workers_end_when_the_main_process_is_killed(photographs, stopped):
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            loader = Loader(photographs, views(), 4, workers=2)
            batches = loader.batches(0)
            next(batches)
            if stopped:  # the last one, which holds all pipes that its elders could watch
                os.kill(workers_of(loader)[-1], signal.SIGSTOP)
            os.write(theirs, " ".join(map(str, workers_of(loader))).encode())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(theirs)
    workers = [int(pid) for pid in os.read(ours, 100).decode().split()]
    os.waitpid(child, 0)
    assert len(workers) == 2
    deadline = time.monotonic() + PATIENCE
    while any(alive(pid) for pid in workers[: 1 if stopped else 2]):
        assert time.monotonic() < deadline, "workers outlive the main process"
        time.sleep(0.05)
    if stopped:
        os.kill(workers[-1], signal.SIGKILL)


def test_a_stopped_worker_is_told_of_and_goes_on_when_it_is_let(photographs, monkeypatch, capsys):
    monkeypatch.setattr(reading, "_PATIENCE", 0.2)
    say = reading._say
    expected = joined(Loader(photographs, views(), 4, workers=0).batches(0))
    with Loader(photographs, views(), 4, workers=1) as loader:
        batches = loader.batches(0)
        seen = [next(batches)]
        (worker,) = workers_of(loader)
        os.kill(worker, signal.SIGSTOP)
        monkeypatch.setattr(reading, "_say", lambda text: (say(text), os.kill(worker, signal.SIGCONT)))
        seen += batches
    assert torch.equal(joined(seen)[1], expected[1])
    told = capsys.readouterr().err
    assert f"dualtemp: worker process {worker}, which reads images, is stopped" in told
    assert f"`kill -CONT {worker}` lets it go on" in told
    assert told.count("is stopped") == 1


def test_a_disk_that_does_not_answer_is_told_of(photographs, monkeypatch, capsys):
    monkeypatch.setattr(reading, "_PATIENCE", 0.1)
    files = SlowAtFirst(photographs.pixels.root, photographs.pixels.names)
    (files.root / "slow").touch()
    with Loader(ImageSet("slow", files), views(), 4, workers=1) as loader:
        next(loader.batches(0))
    assert f"dualtemp: no image below {files.root} could be read for" in capsys.readouterr().err


@pytest.mark.parametrize("leave", ["in the middle", "by close"])
def test_a_stopped_worker_does_not_keep_anyone_from_leaving(photographs, leave):
    loader = Loader(photographs, views(), 4, workers=2)
    batches = loader.batches(0)
    next(batches)
    pids = workers_of(loader)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    started = time.monotonic()
    if leave == "in the middle":
        del batches
    loader.close()
    assert time.monotonic() - started < PATIENCE
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("workers", [0, 2])
def test_a_vanished_or_broken_file_is_replaced_by_another_image_and_named(photographs, workers):
    root = photographs.pixels.root
    (root / "05.png").unlink()
    (root / "11.png").write_bytes(b"not an image")
    healthy = 40 - 2
    with Loader(photographs, views(), 8, workers=workers) as loader:
        index, pixels = joined(loader.batches(0))
    assert loader.problems == {"05.png": "the file is gone", "11.png": "not an image that Pillow can read"}
    assert len(index) == 40
    assert set(index.tolist()) == set(range(40)) - {5, 11}
    assert len(index.unique()) == healthy
    substitutes = [next(i for i in replacements(0, 0, gone, 40, 16) if i not in (5, 11)) for gone in (5, 11)]
    assert sorted(index.tolist()) == sorted([*(set(range(40)) - {5, 11}), *substitutes])
    assert len(pixels.flatten(1).unique(dim=0)) == 40  # even an image that is shown twice is not seen twice


def test_files_that_vanish_in_the_middle_of_an_epoch_are_named(photographs):
    with Loader(photographs, views(), 2, workers=1) as loader:
        batches = loader.batches(0)
        next(batches)
        for name in ("01.png", "02.png", "03.png"):
            (photographs.pixels.root / name).unlink()
        rest = list(batches)
    assert len(rest) == 19
    assert set(loader.problems) <= {"01.png", "02.png", "03.png"}
    assert loader.problems


@pytest.mark.parametrize("workers", [0, 1])
def test_a_folder_that_is_gone_ends_with_one_line(photographs, workers):
    for path in photographs.pixels.root.iterdir():
        path.unlink()
    with Loader(photographs, views(), 8, workers=workers) as loader, pytest.raises(UserError) as caught:
        list(loader.batches(0))
    assert "hardly an image below" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_shows_every_photograph_in_order_as_torchvision_would(photographs, workers):
    seen = list(evaluation_batches(photographs, views(128), 16, workers=workers))
    assert [len(batch.index) for batch in seen] == [16, 16, 8]
    assert torch.cat([batch.index for batch in seen]).tolist() == list(range(40))
    assert torch.equal(torch.cat([b.labels for b in seen if b.labels is not None]), torch.arange(40) % 4)
    steps = v2.Compose([v2.Resize(128 * 8 // 7, interpolation=BICUBIC), v2.CenterCrop(128)])
    expected = torch.stack([steps(to_tensor(photographs.pixels.open(i))) for i in range(40)])
    assert torch.equal(torch.cat([batch.pixels for batch in seen]), views(128).normalize(expected))


def test_evaluation_leaves_unreadable_files_out_and_names_them(photographs):
    (photographs.pixels.root / "03.png").unlink()
    problems: dict[str, str] = {}
    seen = list(evaluation_batches(photographs, views(), 10, workers=0, problems=problems))
    assert torch.cat([batch.index for batch in seen]).tolist() == [i for i in range(40) if i != 3]
    assert problems == {"03.png": "the file is gone"}


def test_evaluation_of_a_set_in_memory_streams_it_in_order():
    images = in_memory()
    assert isinstance(images.pixels, torch.Tensor)
    seen = list(evaluation_batches(images, views(), 16))
    assert [len(batch.index) for batch in seen] == [16, 16, 16, 2]
    assert torch.equal(torch.cat([batch.pixels for batch in seen]), views().normalize(images.pixels))


def test_grey_photographs_are_resized_as_three_equal_channels_would_be(photographs):
    grey = FileImages(photographs.pixels.root, photographs.pixels.names, channels=1)
    image = to_tensor(grey.open(0))
    assert image.shape[0] == 1
    three = resize(image.expand(3, -1, -1).contiguous(), 20, 33)
    assert (resize(image, 20, 33).int() - three[:1].int()).abs().max() <= 1
    assert clean_crop(image, 16).shape == (1, 16, 16)
    batch = next(iter(Loader(ImageSet("grey", grey, channels=1), views(channels=1), 8, workers=0).batches(0)))
    assert batch.views[0].shape == (8, 1, 16, 16)

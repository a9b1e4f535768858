"""Shard-by-shard order: every image once, few shards at a time, entered at any step, the same on any processes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from command_processes import OFTEN, Commands, halting, kill_where_it_halts, together
from drawn_photos import draw_photos
from hypothesis import given
from hypothesis import strategies as st
from run_contents import different, everything
from sharded_runs import TINY

from dualtemp.cli import main
from dualtemp.data import open_source
from dualtemp.data.augment.philox import permutation
from dualtemp.data.augment.views import Views
from dualtemp.data.loading.image_order import shards_at_once
from dualtemp.data.loading.loader import Loader
from dualtemp.data.loading.shard_order import describe_order, shard_order, shards_in_a_batch
from dualtemp.data.shards.packing import pack_folder

VIEWS = Views("paper", 8, 3, (0.5,) * 3, (0.5,) * 3)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=200), st.integers(1, 12), st.integers(0, 2**62), st.integers(0, 99)
)
def test_every_image_comes_once_and_a_group_of_shards_ends_before_the_next(
    shards: list[int], at_once: int, seed: int, epoch: int
) -> None:
    where = torch.tensor(shards)
    order = shard_order(seed, epoch, where, at_once)
    assert sorted(order.tolist()) == list(range(len(shards)))
    # By hand: shards in the order in which they first come; each group is over before another begins.
    seen = where[order].tolist()
    groups = [set[int]()]
    for shard in seen:
        if shard in groups[-1]:
            continue
        assert not any(shard in group for group in groups[:-1])
        if len(groups[-1]) == at_once:
            groups.append(set())
        groups[-1].add(shard)
    if at_once > max(shards):
        assert torch.equal(order, permutation(seed, epoch, len(shards)))


def test_shards_change_their_company_from_epoch_to_epoch_and_all_places_are_likely() -> None:
    where = torch.arange(60) // 10  # six shards
    first = np.array([shard_order(0, epoch, where, 2)[:20].numpy() // 10 for epoch in range(400)])
    counts = np.bincount(first[:, 0], minlength=6)
    assert counts.min() > 0.6 * 400 / 6  # which shard comes first: 67 +- 7 of 400 each
    pairs = {tuple(sorted(set(row.tolist()))) for row in first}
    assert len(pairs) == 15  # every two of six


def test_the_distance_from_a_uniform_order_is_measured() -> None:
    where = torch.arange(1000) // 50
    batches = [shard_order(7, 0, where, 4)[first : first + 25] for first in range(0, 1000, 25)]
    expected = np.mean([len(set(where[batch].tolist())) for batch in batches])
    assert shards_in_a_batch(torch.cat(batches), where, 25) == pytest.approx(expected)
    assert describe_order(7, where, 4, 25).startswith(
        f"order: 4 of 20 shards at a time; a batch has images of {expected:.1f} "
    )
    assert shards_at_once("uniform") is None
    assert (shards_at_once("shards"), shards_at_once("shards:3")) == (16, 3)
    for wrong in ("shard", "shards:0", "shards:", "shards:-1", ""):
        with pytest.raises(ValueError, match="order must be uniform, shards"):
            shards_at_once(wrong)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packed")
    for number in range(2):
        draw_photos(root / "photos" / f"c{number}", 20, first=20 * number)
    pack_folder(root / "photos", root / "shards", shard_size=20_000)
    return root


def test_a_loader_reads_few_shards_at_a_time_from_any_step_and_with_any_number_of_processes(packed: Path) -> None:
    images = open_source(packed / "shards").train
    shards = images.source.shards()
    assert shards is not None
    assert len(set(shards.tolist())) > 4
    with Loader(images, VIEWS, 8, workers=0, order="shards:2") as loader:
        whole = [batch.index.tolist() for batch in loader.batches(1)]
        assert [batch.index.tolist() for batch in loader.batches(1, 2)] == whole[2:]
    assert [i for batch in whole for i in batch] == shard_order(3, 1, torch.as_tensor(shards), 2)[
        : len(whole) * 8
    ].tolist()
    halves = []
    for rank in range(2):
        with Loader(images, VIEWS, 8, workers=0, order="shards:2", rank=rank, world=2) as loader:
            halves.append([batch.index.tolist() for batch in loader.batches(1)])
    assert [one + other for one, other in zip(*halves, strict=True)] == whole


def test_images_that_are_in_no_shards_are_refused_in_one_line(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    words = ["--order", "shards", "--backbone", "resnet_mini", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main(["train", "--data", str(packed / "photos"), *words]) == 2
    assert "is in no shards" in capsys.readouterr().err
    words[1] = "shard"
    assert main(["train", "--data", str(packed / "photos"), *words]) == 2
    assert "order must be uniform, shards" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_in_this_order_that_is_killed_ends_with_the_bits_of_one_that_was_not(
    commands: Commands, packed: Path, tmp_path: Path
) -> None:
    words = (
        "train",
        *TINY,
        "--epochs",
        "2",
        "--warmup-epochs",
        "0",
        "--data",
        packed / "shards",
        "--order",
        "shards:2",
    )
    run, whole = tmp_path / "run", tmp_path / "whole"
    killed = together(commands, *words, *OFTEN, "--out", run, count=2, first=halting(".step-*.part", 2))
    kill_where_it_halts(*killed)
    ended = [each.wait() for each in together(commands, "resume", run, "--no-page", "--workers", "1", count=2)]
    assert [each.code for each in ended] == [0, 0], "".join(each.err for each in ended)
    ended = [each.wait() for each in together(commands, *words, "--out", whole, count=2)]
    assert [each.code for each in ended] == [0, 0], "".join(each.err for each in ended)
    assert "order: 2 of" in ended[0].out + ended[0].err
    assert different(everything(run), everything(whole)) == []

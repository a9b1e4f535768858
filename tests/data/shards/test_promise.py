"""The promise: the same images, order and pixels on any number of processes and from any step, the same bits after a
kill; and shards go through every command as their folder does.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_processes import Commands
from run_contents import different, everything
from sharded_runs import TINY, check_kill, seen

from dualtemp.data import open_source


def test_images_order_and_pixels_are_the_same_on_any_number_of_processes_and_from_any_step(
    photos: Path, shards: Path
) -> None:
    index, views = seen(open_source(photos).train, 1, 0)
    assert len(index) == 24
    packed = open_source(shards).train
    for world, workers in ((1, 0), (2, 1), (4, 0)):
        found = seen(packed, world, workers)
        assert found[0] == index, world
        assert torch.equal(found[1], views), world
    late = seen(packed, 2, 0, start=2)
    assert late[0] == index[16:]
    assert torch.equal(late[1], views[:, 16:])


@pytest.mark.parametrize("count", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4))])
@pytest.mark.slow
def test_a_killed_run_on_shards_ends_with_the_bits_of_the_folder(
    commands: Commands, photos: Path, shards: Path, tmp_path: Path, count: int
) -> None:
    check_kill(commands, photos, f"{shards}/{{train,test}}/*.tar", tmp_path, count)


@pytest.mark.slow
def test_shards_go_through_every_command_as_their_folder_does(
    commands: Commands, photos: Path, shards: Path, tmp_path: Path
) -> None:
    made: dict[str, tuple[Any, ...]] = {}
    query = shutil.copy(photos / "test/cat/040.png", tmp_path / "query.png")  # a file of the set would leave itself out
    for name, data in (("files", photos), ("shards", shards)):
        run, measured, found = tmp_path / name, [], None
        for words in (
            ("train", "--data", data, *TINY, "--epochs", "1", "--out", run),
            ("embed", run, "--data", data, "--out", tmp_path / f"{name}.npz", "--workers", "0"),
            ("search", run, query, "--data", data, "--workers", "0", "--json"),
            ("near-duplicates", run, "--data", data, "--workers", "0", "--json"),
            ("evaluate", run, "--data", data, "--only", "knn", "--json", "--workers", "0"),
            ("analyze", run, "neighbours", "--data", data),
            ("data", data, "--show", "--out", tmp_path / f"{name}.png"),
        ):
            ended = commands.run(*words)
            assert ended.code == 0, (words, ended.err)
            if words[0] == "evaluate":
                measured = [{**each, "seconds": 0, "data": ""} for each in json.loads(ended.out)["measured"]]
            if words[0] == "search":
                found = re.findall(r'"([^"]*\.png)"', ended.out)
        checked = json.loads(commands.run("data", data, "--json").out)
        with np.load(tmp_path / f"{name}.npz") as arrays:
            order = arrays["names"].argsort()
            embedded = arrays["names"][order].tolist(), arrays["features"][order]
        made[name] = everything(run), embedded, measured, found, checked, (tmp_path / f"{name}.png").read_bytes()
    files, packed = made["files"], made["shards"]
    assert different(files[0], packed[0]) == [".settings.data"]
    assert packed[1][0] == files[1][0]
    np.testing.assert_allclose(packed[1][1], files[1][1], rtol=1e-5, atol=1e-6)
    assert packed[2] == files[2]
    assert packed[3] == files[3]
    assert len(files[3]) > 3
    assert packed[4]["parts"] == files[4]["parts"]
    assert packed[4]["unreadable"] == files[4]["unreadable"]
    assert packed[5][:4] == files[5][:4] == b"\x89PNG", "the contact sheet"

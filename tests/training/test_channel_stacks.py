"""A folder of 16-bit TIFF files with four channels, from training to use: killed, resumed, embedded, exported; also on
two processes.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command_processes import Commands, halting, kill_where_it_halts, together
from drawn_photos import draw_photos
from drawn_stacks import drawn_stack, write_stack
from run_contents import different, everything
from two_process_runs import check_two_processes

from dualtemp.encoder.embedding_reader import EmbeddingFile
from dualtemp.encoder.encoder import run_encoder

pytest.importorskip("tifffile")

WORDS = ("--backbone", "resnet_mini", "--image-size", "32", "--batch", "8", "--epochs", "2", "--knn", "3")


def draw_stacks(folder: Path) -> None:
    for number in range(2):
        for n in range(18):
            write_stack(folder / f"c{number}" / f"{n}.tif", drawn_stack(18 * number + n))


@pytest.mark.slow
def test_two_processes_learn_from_stacks_what_one_learns_and_go_on_after_a_kill(
    commands: Commands, tmp_path: Path
) -> None:
    draw_stacks(tmp_path / "stacks")
    images = check_two_processes(commands, tmp_path, "--data", tmp_path / "stacks", *WORDS)
    assert len(images["levels"]) == 4


@pytest.mark.slow
def test_four_channels_of_16_bits_all_the_way(commands: Commands, tmp_path: Path) -> None:
    draw_stacks(tmp_path / "stacks")
    data = ("--data", tmp_path / "stacks", *WORDS, "--workers")
    runs = {name: tmp_path / name for name in ("whole", "killed")}
    (whole,) = together(commands, "train", *data, 0, "--out", runs["whole"], count=1)
    assert whole.wait().code == 0, whole.wait().err
    often = ("--checkpoint-minutes", "1e-9")
    (killed,) = together(
        commands, "train", *data, 1, *often, "--out", runs["killed"], count=1, first=halting(".step-*.part", 2)
    )
    kill_where_it_halts(killed)
    resumed = commands.run("resume", runs["killed"], "--workers", 1)
    assert resumed.code == 0, resumed.err
    assert different(everything(runs["killed"]), everything(runs["whole"])) == []

    images = json.loads((runs["whole"] / "environment.json").read_text())["images"]
    assert images["channels"] == len(images["mean"]) == len(images["levels"]) == 4

    # Other images, all of them darker: they are seen by the levels of the run, not by their own.
    others = {f"{n}.tif": write_stack(tmp_path / "dark" / f"{n}.tif", drawn_stack(50 + n) // 2) for n in range(5)}
    ended = commands.run("embed", runs["whole"], "--data", tmp_path / "dark", "--out", tmp_path / "f.npz")
    assert ended.code == 0, ended.err
    found = EmbeddingFile(tmp_path / "f.npz")
    (rows,) = list(found.rows())
    encoder = run_encoder(runs["whole"], "cpu")
    low, high = (np.array([pair[end] for pair in images["levels"]]) for end in (0, 1))
    for name, feature in zip(rows.names, rows.features, strict=True):
        pixels = ((others[name] - low) / (high - low) * 255).clip(0, 255).round().astype(np.uint8)
        crop = torch.nn.functional.interpolate(
            torch.from_numpy(pixels).permute(2, 0, 1)[None], (32, 35), mode="bicubic", antialias=True
        )[..., 2:34]  # of 36 x 40, the middle
        view = (crop / 255 - torch.tensor(images["mean"]).view(-1, 1, 1)) / torch.tensor(images["std"]).view(-1, 1, 1)
        np.testing.assert_allclose(feature, encoder.of_views(view)[0].numpy(), atol=0.02)

    for words in (
        ("evaluate", runs["whole"]),
        ("search", runs["whole"], tmp_path / "dark" / "0.tif", "--data", tmp_path / "stacks", "-k", "2"),
        ("near-duplicates", runs["whole"], "--data", tmp_path / "stacks"),
        ("data", tmp_path / "stacks"),
        ("data", tmp_path / "stacks", "--show", "--out", tmp_path / "sheet.png"),
    ):
        ended = commands.run(*words)
        assert ended.code == 0, (words, ended.err)

    ended = commands.run("export", runs["whole"], "--out", tmp_path / "exported")
    assert ended.code == 0, ended.err
    how = json.loads((tmp_path / "exported" / "preprocessing.json").read_text())
    assert how["levels"] == images["levels"]
    card = (tmp_path / "exported" / "README.md").read_text()
    program = next(part for part in card.split("```python\n")[1:] if "preprocessing.json" in part).split("```")[0]
    values = np.stack([drawn_stack(n)[:32, :32].transpose(2, 0, 1) for n in range(2)])
    np.save(tmp_path / "exported" / "image.npy", values)
    made: dict[str, np.ndarray] = {}
    program = program.replace('open("', f'open("{tmp_path}/exported/').replace('load("', f'load("{tmp_path}/exported/')
    exec(program, made)
    expected = (values - low.reshape(-1, 1, 1)) / (high - low).reshape(-1, 1, 1) * 255
    assert np.abs(made["pixels"] - expected.clip(0, 255)).max() <= 0.5 + 1e-3

    draw_photos(tmp_path / "photos", 5)
    refused = commands.run("evaluate", runs["whole"], "--data", tmp_path / "photos")
    assert refused.code == 2
    started = commands.run("train", *data, 0, "--init", "imagenet", "--out", tmp_path / "no")
    assert started.code == 2
    assert not (tmp_path / "no").exists()

"""Gray images of 12 bits in files of 16 with `--levels measured`: trained, killed, resumed, used; two processes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command_processes import Commands
from drawn_xrays import drawn_xray, write_gray
from two_process_runs import check_two_processes

from dualtemp.analysis.analyzed_data import open_analyzed_data
from dualtemp.data import open_source
from dualtemp.data.shards.packing import pack_folder
from dualtemp.encoder.embedding_reader import EmbeddingFile
from dualtemp.encoder.encoder import run_encoder
from dualtemp.runs.folder import RunFolder

WORDS = ("--backbone", "resnet_mini", "--image-size", "32", "--batch", "8", "--epochs", "2", "--knn", "3")
MEASURED = ("--levels", "measured")


def draw_classes(folder: Path, side: int = 120, endings: tuple[str, str] = ("png", "tif")) -> None:
    """Two classes, one in PNG files, one in TIFF files; above 96 px they stay in files, below they are one tensor."""
    for number, ending in enumerate(endings):
        for n in range(18):
            write_gray(folder / f"c{number}" / f"{n}.{ending}", drawn_xray(18 * number + n, side))


def recorded(run: Path) -> dict:
    return json.loads((run / "environment.json").read_text())["images"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("side", "packed"), [(40, False), (120, False), (120, True)], ids=["in memory", "in files", "in shards"]
)
def test_two_processes_learn_what_one_learns_and_go_on_after_a_kill(
    commands: Commands, tmp_path: Path, side: int, packed: bool
) -> None:
    data = tmp_path / "xrays"
    draw_classes(data, side)
    if packed:
        data = tmp_path / "shards"
        pack_folder(tmp_path / "xrays", data, shard_size=200_000)
        assert len(list(data.glob("*.tar"))) > 1
    ((low, high),) = check_two_processes(commands, tmp_path, "--data", data, *WORDS, *MEASURED)["levels"]
    assert 0 < low < high < 4096


@pytest.mark.slow
def test_a_run_keeps_its_levels_wherever_it_is_used(commands: Commands, tmp_path: Path) -> None:
    draw_classes(tmp_path / "xrays")
    data = ("--data", tmp_path / "xrays", *WORDS, "--workers", 0)
    run = tmp_path / "run"
    ended = commands.run("train", *data, *MEASURED, "--init", "none", "--out", run)
    assert ended.code == 0, ended.err
    images = recorded(run)
    ((low, high),) = images["levels"]
    assert images["channels"] == len(images["mean"]) == 1
    assert images["mean"][0] > 0.2  # divided by 257 they would be below 0.06
    assert "white (measured)" in " ".join(ended.out.split())

    # Other images, all of them darker: they are seen by the levels of the run, not by their own.
    others = {f"{n}.png": write_gray(tmp_path / "dark" / f"{n}.png", drawn_xray(50 + n) // 2) for n in range(5)}
    ended = commands.run("embed", run, "--data", tmp_path / "dark", "--out", tmp_path / "f.npz")
    assert ended.code == 0, ended.err
    (rows,) = list(EmbeddingFile(tmp_path / "f.npz").rows())
    encoder = run_encoder(run, "cpu")
    mean, std = images["mean"][0], images["std"][0]

    def seen(values: np.ndarray) -> np.ndarray:
        pixels = ((values - low) / (high - low) * 255).clip(0, 255).round().astype(np.uint8)
        crop = torch.nn.functional.interpolate(
            torch.from_numpy(pixels)[None, None], (32, 35), mode="bicubic", antialias=True
        )[..., 2:34]  # of 36 x 40, the middle
        return encoder.of_views((crop / 255 - mean) / std)[0].numpy()

    for name, feature in zip(rows.names, rows.features, strict=True):
        np.testing.assert_allclose(feature, seen(others[name]), atol=0.02)
        assert np.abs(feature - seen(others[name] * 2)).max() > 0.05  # so much the levels matter

    draw_classes(tmp_path / "small", 40)  # in memory
    analyzed = open_analyzed_data(RunFolder(run), encoder.settings, tmp_path / "small").images.source
    assert analyzed.tensor is not None
    assert analyzed.files is not None
    name = analyzed.files.names[0]
    expected = (drawn_xray(int(Path(name).stem) + 18 * int(name[1]), 40) - low) / (high - low) * 255
    assert np.abs(analyzed.pixels(0)[0].numpy() - expected.clip(0, 255)).max() <= 0.5 + 1e-3

    for words in (
        ("evaluate", run),
        ("evaluate", run, "--data", tmp_path / "small"),
        ("evaluate", run, "--data", tmp_path / "xrays"),
        ("search", run, tmp_path / "dark" / "0.png", "--data", tmp_path / "xrays", "-k", "2"),
        ("near-duplicates", run, "--data", tmp_path / "xrays"),
        ("predict", run, "--data", tmp_path / "dark"),
    ):
        ended = commands.run(*words)
        assert ended.code == 0, (words, ended.err)

    ended = commands.run("export", run, "--out", tmp_path / "exported")
    assert ended.code == 0, ended.err
    exported = tmp_path / "exported"
    assert json.loads((exported / "preprocessing.json").read_text())["levels"] == [[low, high]]
    card = (exported / "README.md").read_text()
    program = next(part for part in card.split("```python\n")[1:] if "preprocessing.json" in part).split("```")[0]
    program = program.replace('open("preprocessing', f'open("{exported}/preprocessing').replace(
        "photo.jpg", str(tmp_path / "dark" / "0.png")
    )
    made: dict[str, np.ndarray] = {}
    exec(program, made)
    found = encoder.of_views(torch.from_numpy(made["images"]))[0].numpy()
    np.testing.assert_allclose(found, seen(others["0.png"]), atol=0.03)
    refused = commands.run("export", run, "--format", "onnx-web", "--out", tmp_path / "web")
    assert refused.code == 2
    assert "a canvas has 8 bits" in refused.err

    # Without the flag, as before: divided by 257, nothing of levels in the folder, and the hint.
    plain = commands.run("train", *data, "--init", "none", "--out", tmp_path / "plain")
    assert plain.code == 0, plain.err
    assert "levels" not in recorded(tmp_path / "plain")
    assert "--levels measured" in " ".join(plain.out.split())
    for words, said in (
        (("--data", "digits", *MEASURED), "no gray image of more than 8 bits"),
        (("--data", tmp_path / "xrays", "--levels", "measurd"), "no levels is called 'measurd'"),
    ):
        refused = commands.run("train", *words, "--out", tmp_path / "no")
        assert refused.code == 2
        assert said in refused.err
        assert len(refused.err.strip().splitlines()) == 1
        assert not (tmp_path / "no").exists()


@pytest.mark.slow
def test_gray_levels_go_with_three_channels_of_a_start(commands: Commands, tmp_path: Path) -> None:
    draw_classes(tmp_path / "xrays")
    words = ("--data", tmp_path / "xrays", "--batch", "8", "--epochs", "1", "--knn", "3", "--image-size", "32")
    ended = commands.run("train", *words, *MEASURED, "--workers", 0, "--init", "imagenet", "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    images = recorded(tmp_path / "run")
    assert images["channels"] == 3
    ((low, high),) = images["levels"]
    encoder = run_encoder(tmp_path / "run", "cpu")
    shown = encoder.fitted(open_source(tmp_path / "xrays").train).source
    name = shown.names[0]
    values = drawn_xray(int(Path(name).stem) + 18 * int(name[1]), 120)
    expected = ((values - low) / (high - low) * 255).clip(0, 255)
    assert np.abs(shown.pixels(0).numpy() - expected).max() <= 0.5 + 1e-3  # in all three
    ended = commands.run("evaluate", tmp_path / "run", "--workers", 0)
    assert ended.code == 0, ended.err

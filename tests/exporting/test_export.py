import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch
from command_processes import PATIENCE
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st
from PIL import Image

import dualtemp
from dualtemp import file_lock
from dualtemp.cli import main
from dualtemp.config import complete, settings
from dualtemp.data import open_source
from dualtemp.data.augment.views import Views, evaluation_side
from dualtemp.data.images import FileImages, ImageSet
from dualtemp.data.loading.loader import evaluation_batches
from dualtemp.encoder.encoder import run_encoder
from dualtemp.errors import UserError
from dualtemp.evaluation.classifier import fit_classifier
from dualtemp.evaluation.classifier_file import CLASSIFIER_FILE, save_classifier
from dualtemp.exporting import builder, formats, write_format
from dualtemp.exporting import export as export_module
from dualtemp.exporting.export import export
from dualtemp.exporting.export_folder import LOCK, workshop
from dualtemp.exporting.exported_encoder import ExportedEncoder
from dualtemp.exporting.loading import how_to_preprocess
from dualtemp.exporting.lookup import export_formats
from dualtemp.exporting.model_card import CardFacts
from dualtemp.exporting.preprocessing import preprocessing, timm_preprocessing
from dualtemp.models import build_backbone, describe_backbone, save_backbone
from dualtemp.runs.folder import RunFolder
from dualtemp.torchvision_operators import declare_missing_operators
from dualtemp.training.launch import ExecutionOptions
from dualtemp.training.start import start

declare_missing_operators()

import timm.data  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

MEAN, STD = (0.5, 0.4, 0.6, 0.3), (0.25, 0.2, 0.3, 0.22)

# Runs the Python of the model cards in a process that has no dualtemp: photo.jpg at first, then seven random images.
WITHOUT_DUALTEMP = """
import json, os, re, runpy, sys
operators, folders = json.loads(sys.argv[1])
kept = runpy.run_path(operators)  # else torchvision cannot be imported beside some builds of torch
kept["declare_missing_operators"]()

class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "dualtemp": raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
try: import dualtemp
except ModuleNotFoundError: pass
else: raise SystemExit("dualtemp can be imported")

import numpy as np, torch
torch.set_num_threads(1)
for folder in folders:
    os.chdir(folder)
    sys.path[0] = folder
    sys.modules.pop("model", None)
    card = open("README.md").read()
    prepare, *ways = re.findall("```python\\n(.*?)```", card, re.DOTALL)
    titles = re.findall("^### (.*)$", card, re.MULTILINE)
    assert len(titles) == len(ways), (titles, ways)
    names = {}
    exec(prepare, names)
    found = {"pixels": names["pixels"]}
    seven = np.random.default_rng(0).integers(0, 256, (7, *names["pixels"].shape[1:]), dtype=np.uint8)
    for title, way in zip(titles, ways):
        for count, pixels in ((1, names["pixels"]), (7, seven)):
            images = ((pixels / 255 - names["mean"]) / names["std"]).astype(np.float32)
            assert count == 7 or np.array_equal(images, names["images"])
            given = {"pixels": pixels, "images": images}
            exec(way, given)
            found[f"{title} {count}"] = np.asarray(given["features"])
    np.savez(os.path.join(folder, "found.npz"), **found)
"""


def untrained_run(path: Path, backbone: str, size: int, channels: int = 3) -> Path:
    """A run folder as training leaves it, with weights that no initialization has."""
    values = {"data": "cifar10", "backbone": backbone, "image_size": size, "method": "simmoco"}
    chosen = complete(settings(values), size)
    images = {"channels": channels, "size": size, "mean": MEAN[:channels], "std": STD[:channels], "classes": []}
    with RunFolder(path).create(chosen, {"images": images}):
        pass
    module = build_backbone(backbone, size, channels, seed=1)
    generator = torch.Generator().manual_seed(2)
    for name, value in module.state_dict().items():  # a block whose last batch norm is zero would not matter
        if name.endswith("running_var"):
            value.uniform_(0.5, 1.5, generator=generator)
        elif value.is_floating_point() and value.ndim < 2:
            value.add_(torch.empty_like(value).uniform_(0.1, 0.3, generator=generator))
    save_backbone(path / "backbone.safetensors", module)
    return path


def photo(path: Path, width: int, height: int, mode: str = "RGB") -> Path:
    """A drawn photograph: smooth, with an edge and noise."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    noise = np.random.default_rng(3).integers(0, 60, (height, width, 3))
    pixels = np.stack([x * 190 // width, y * 190 // height, (x > y) * 150], 2) + noise
    Image.fromarray(pixels.astype(np.uint8)).convert(mode).save(path, quality=95)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "digits"
    values = {"data": "digits", "backbone": "resnet_mini", "batch": 64, "epochs": 1, "subset": 128, "knn_images": 128}
    start(settings(values), path, ExecutionOptions(device="cpu", quiet=True))
    return path


class Exported:
    """Exports, and what a process without dualtemp made of them."""

    def __init__(self, cases: dict[str, tuple[Path, dict[str, Any]]]) -> None:
        self.folders = {name: export(run, **asked) for name, (run, asked) in cases.items()}
        self.encoders = {name: run_encoder(run, "cpu") for name, (run, _) in cases.items()}
        for name, folder in self.folders.items():
            encoder = self.encoders[name]
            size, channels = encoder.views.size, encoder.channels
            if channels == 4:
                np.save(folder / "image.npy", np.random.default_rng(1).integers(0, 256, (1, 4, size, size), np.uint8))
            else:
                photo(folder / "photo.jpg", 301, 233, "L" if channels == 1 else "RGB")
        operators = str(Path(sys.modules["dualtemp.torchvision_operators"].__file__ or ""))
        asked = json.dumps([operators, [str(folder) for folder in self.folders.values()]])
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_DUALTEMP, asked], capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr

    def found(self, name: str) -> dict[str, np.ndarray]:
        with np.load(self.folders[name] / "found.npz") as arrays:
            return dict(arrays)


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    made = tmp_path_factory.mktemp("exported")
    weights = ("safetensors", "timm")
    return Exported(
        {
            "digits": (trained, {"format": "all", "out": made / "some" / "folder"}),
            "digits, pixels": (trained, {"format": "torch-export", "normalize": True}),
            "resnet18, 32 px": (untrained_run(made / "a", "resnet18", 32), {}),
            "resnet18, 224 px": (untrained_run(made / "b", "resnet18", 224), {"format": weights}),
            "resnet18, grey": (untrained_run(made / "c", "resnet18", 64, 1), {"format": weights}),
            "resnet18, 4 channels": (untrained_run(made / "d", "resnet18", 64, 4), {"format": weights}),
            "vit_tiny, 32 px": (untrained_run(made / "e", "vit_tiny", 32), {"format": weights}),
        }
    )


WAYS = {
    "digits": {"torch: model.py", "onnxruntime", "torch.export"},
    "digits, pixels": {"torch.export"},
    "resnet18, 32 px": {"torch: model.py", "torchvision"},
    "resnet18, 224 px": {"torch: model.py", "torchvision", "timm"},
    "resnet18, grey": {"torch: model.py", "torchvision", "timm"},
    "resnet18, 4 channels": {"torch: model.py", "torchvision", "timm"},
    "vit_tiny, 32 px": {"torch: model.py", "timm"},
}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.slow
def test_the_cards_own_programs_give_the_runs_features_without_dualtemp(exported: Exported, name: str) -> None:
    found, encoder = exported.found(name), exported.encoders[name]
    assert {key.rpartition(" ")[0] for key in found} - {""} == WAYS[name]
    seven = np.random.default_rng(0).integers(0, 256, (7, *found["pixels"].shape[1:]), dtype=np.uint8)
    for count, pixels in ((1, found["pixels"]), (7, seven)):
        wanted = encoder.of_views(encoder.views.normalize(torch.from_numpy(pixels))).numpy()
        assert np.abs(wanted).max() > 0.05
        if count == 7:
            assert np.abs(wanted[0] - wanted[1]).max() > 1e-3, "features tell images apart"
        for way in WAYS[name]:
            np.testing.assert_allclose(found[f"{way} {count}"], wanted, rtol=1e-5, atol=1e-5, err_msg=way)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backbone", "size"), [("vit_tiny", 32), ("swin_tiny", 32), ("resnet18", 32), ("resnet50", 224)]
)
def test_graphs_of_larger_encoders_give_the_runs_features_without_dualtemp(
    tmp_path: Path, backbone: str, size: int
) -> None:
    run = untrained_run(tmp_path / "run", backbone, size)
    asked = {"format": ("safetensors", "onnx", "torch-export"), "normalize": backbone == "resnet18"}
    exported = Exported({"it": (run, asked)})
    found, encoder = exported.found("it"), exported.encoders["it"]
    seven = np.random.default_rng(0).integers(0, 256, (7, 3, size, size), dtype=np.uint8)
    for count, pixels in ((1, found["pixels"]), (7, seven)):
        wanted = encoder.of_views(encoder.views.normalize(torch.from_numpy(pixels))).numpy()
        for way in {key.rpartition(" ")[0] for key in found} - {""}:
            np.testing.assert_allclose(found[f"{way} {count}"], wanted, rtol=1e-5, atol=1e-5, err_msg=way)


@pytest.mark.parametrize("name", [name for name in WAYS if "4 channels" not in name])
@pytest.mark.slow
def test_the_cards_pixels_are_those_of_evaluation_to_two_grey_levels(exported: Exported, name: str) -> None:
    """Pillow and torch both round to 8 bits, twice on the way; they agree but for single levels."""
    encoder, folder = exported.encoders[name], exported.folders[name]
    images = ImageSet("photo", FileImages(folder, ("photo.jpg",), encoder.channels), channels=encoder.channels)
    (batch,) = evaluation_batches(images, encoder.views, workers=0)
    evaluated = (encoder.views.unnormalize(batch.pixels) * 255).numpy()
    levels = np.abs(exported.found(name)["pixels"] - evaluated)
    assert levels.max() < 2.001
    assert levels.mean() < 0.05
    features = encoder.of_views(batch.pixels).numpy()
    way = sorted(WAYS[name])[0]
    difference = np.abs(exported.found(name)[f"{way} 1"] - features).max() / np.abs(features).max()
    assert difference < 0.01, f"{difference}: a grey level here and there hardly counts"


@pytest.mark.parametrize(("width", "height"), [(224, 224), (256, 256), (500, 375), (375, 501), (100, 80), (225, 1001)])
@pytest.mark.parametrize("size", [32, 224])
def test_torchvision_with_the_json_does_exactly_what_evaluation_does(
    tmp_path: Path, width: int, height: int, size: int
) -> None:
    views = Views("paper", size, 0, MEAN[:3], STD[:3])
    how = json.loads(json.dumps(preprocessing(views)))
    assert (how["value_range"], how["layout"], how["dtype"]) == ([0.0, 1.0], "NCHW", "float32")
    path = photo(tmp_path / "photo.png", width, height)
    transform = v2.Compose(
        [
            v2.PILToTensor(),
            v2.Resize(
                how["resize"]["shorter_side"], v2.InterpolationMode.BICUBIC, antialias=how["resize"]["antialias"]
            ),
            v2.CenterCrop((how["crop"]["height"], how["crop"]["width"])),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(how["mean"], how["std"]),
        ]
    )
    images = ImageSet("photo", FileImages(tmp_path, ("photo.png",)))
    (batch,) = evaluation_batches(images, views, workers=0)
    with Image.open(path) as image:
        reduced = image.convert(how["mode"]).reduce(max(1, min(image.size) // how["reduce"]["enough"]))
        torch.testing.assert_close(transform(reduced), batch.pixels[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_the_right_size_become_the_same_numbers_by_pillow_and_numpy(tmp_path: Path, channels: int) -> None:
    views = Views("paper", 32, 0, MEAN[:channels], STD[:channels])
    (tmp_path / "preprocessing.json").write_text(json.dumps(preprocessing(views)))
    photo(tmp_path / "photo.jpg", 32, 32, "L" if channels == 1 else "RGB")
    names: dict[str, Any] = {}
    program = how_to_preprocess(preprocessing(views)).replace('"photo.jpg"', repr(str(tmp_path / "photo.jpg")))
    exec(program.replace('"preprocessing.json"', repr(str(tmp_path / "preprocessing.json"))), names)
    with Image.open(tmp_path / "photo.jpg") as image:
        pixels = torch.from_numpy(np.array(image)).reshape(1, 32, 32, channels).permute(0, 3, 1, 2)
    np.testing.assert_allclose(names["images"], views.evaluation(pixels).numpy(), atol=1e-6)
    assert names["images"].dtype == np.float32


@given(st.integers(1, 2000))
@settings_of_hypothesis(max_examples=100)
def test_timm_resizes_to_the_same_side(size: int) -> None:
    found = timm_preprocessing(Views("paper", size, 0, MEAN[:3], STD[:3]))
    assert int(size / found["crop_pct"]) == evaluation_side(size)


@pytest.mark.slow
def test_timms_own_transform_prepares_images_as_evaluation_does(exported: Exported) -> None:
    folder, encoder = exported.folders["resnet18, 224 px"], exported.encoders["resnet18, 224 px"]
    config = json.loads((folder / "config.json").read_text())
    library: Any = timm.data
    transform = library.create_transform(**library.resolve_data_config(pretrained_cfg=config["pretrained_cfg"]))
    with Image.open(folder / "photo.jpg") as image:
        prepared = encoder.views.unnormalize(transform(image)[None]) * 255
    np.testing.assert_allclose(prepared.numpy(), exported.found("resnet18, 224 px")["pixels"], atol=1e-3)


@pytest.mark.slow
def test_the_card_tells_settings_data_and_figures(trained: Path, exported: Exported) -> None:
    card = (exported.folders["digits"] / "README.md").read_text()
    last = RunFolder(trained).history()[-1]
    assert (
        f"| online linear probe | trained | validation | 128 | {last['probe_top1']:.2f} | {last['probe_top5']:.2f} |"
        in card
    )
    assert f"| kNN while training | trained | validation | 128 | {last['knn_top1']:.2f} |" in card
    for said in (
        "# digits: an image encoder",
        "`resnet_mini`",
        "8 x 8 pixels with 1 channel into 128 features",
        "without labels by simco (tau_alpha 0.1, tau_beta 1.0)",
        "Trained on `digits`: 128 images (content ",
        "never trained on: 359 images",
        "10 classes: 0, 1, 2,",
        "license of these images is not known",
        "opset 18",
        "batch: 64",
    ):
        assert said in card, said


def test_the_card_shows_what_evaluate_found_and_hides_where_the_data_lay(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run", "resnet_mini", 32)
    config = (run / "config.yaml").read_text().replace("data: cifar10", "data: /home/somebody/holiday|`photos")
    (run / "config.yaml").write_text(config)
    (run / "config.yaml").write_text(config.replace("labels_from: null", "labels_from: /home/somebody/labels.csv"))
    measured = {"name": "kNN", "encoder": "raw pixels", "data": "validation", "top1": 31.25, "top5": None, "labels": 90}
    elsewhere = "/home/somebody/test, labels of /home/somebody/age.csv"
    rows = [measured, measured | {"data": elsewhere}]
    (run / "evaluation.json").write_text(json.dumps({"measured": rows}))
    made = fit_classifier(torch.randn(20, 128), torch.arange(20) % 2, ("a", "b"))
    facts = {"backbone": run_encoder(run, "cpu").fingerprint, "data": "/home/somebody/photos"}
    save_classifier(run / CLASSIFIER_FILE, made.with_facts(**facts))
    folder = export(run)
    card = (folder / "README.md").read_text()
    assert "labels_from: labels.csv" in card
    assert "| kNN | raw pixels | validation | 90 | 31.25 |  |" in card
    assert "| kNN | raw pixels | test, labels of age.csv | 90 | 31.25 |  |" in card
    assert b"photos" in (folder / CLASSIFIER_FILE).read_bytes()
    assert not [path for path in folder.rglob("*") if path.is_file() and b"somebody" in path.read_bytes()]
    assert "`holiday/'photos`" in card
    assert "somebody" not in card
    for broken in ("", "[]", '{"measured": 3}', '{"measured": [7]}'):
        (run / "evaluation.json").write_text(broken)
        assert "Nothing was measured." in (export(run) / "README.md").read_text()


@pytest.mark.parametrize(("backbone", "built"), [("resnet_mini", "32, 3"), ("resnet_mini_x2", "32, 3, 2")])
def test_the_builder_of_a_network_knows_its_width(backbone: str, built: str, tmp_path: Path) -> None:
    folder = export(untrained_run(tmp_path / "run", backbone, 32))  # compares the features of what it has written
    assert f"model = ResNetMini({built})" in (folder / "model.py").read_text()


def test_the_card_of_a_run_that_has_gone_on_does_not_show_what_evaluate_found_before(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run", "resnet_mini", 32)
    measured = {"name": "kNN", "encoder": "trained", "data": "validation", "top1": 31.25, "top5": None, "labels": 90}
    (run / "evaluation.json").write_text(json.dumps({"step": 40, "made": "", "measured": [measured]}))
    for step, shown in ((40, True), (80, False)):
        (run / "metrics.jsonl").write_text(json.dumps({"epoch": step // 40, "step": step}) + "\n")
        assert ("31.25" in (export(run) / "README.md").read_text()) == shown


def test_formats_of_the_same_encoder_gather_and_those_of_another_go(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run", "vit_tiny", 32)
    folder = export(run, "safetensors")
    assert folder == run / "export"
    (folder / "notes.txt").write_text("mine")
    export(run, "timm")
    card = (folder / "README.md").read_text()
    assert "### timm" in card
    assert "### torch: model.py" in card
    assert set(os.listdir(folder)) == {
        *("model.safetensors", "model.py", "config.json"),
        *("preprocessing.json", "export.json", "README.md", "notes.txt"),
    }
    trained_on = build_backbone("vit_tiny", 32, seed=5)
    save_backbone(run / "backbone.safetensors", trained_on)
    export(run, ("timm",))
    assert not (folder / "model.py").exists(), "it would load, but nobody has asked for it with these weights"
    assert (folder / "notes.txt").read_text() == "mine"
    assert list(json.loads((folder / "export.json").read_text())["formats"]) == ["timm"]
    assert "### torch: model.py" not in (folder / "README.md").read_text()
    model = timm.create_model(f"local-dir:{folder}", pretrained=True)
    assert torch.equal(model.state_dict()["pos_embed"], trained_on.state_dict()["pos_embed"])


@pytest.mark.parametrize(
    "is_new",
    [
        pytest.param(True, id="into a new folder"),
        pytest.param(False, id="into an earlier export", marks=pytest.mark.slow),
    ],
)
def test_two_exports_into_one_folder_at_the_same_time_list_both_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    run, out = untrained_run(tmp_path / "run", "vit_tiny", 32), tmp_path / "out"
    if not is_new:
        export(run, "torch-export", out)
    both, real = threading.Barrier(2), export_module.model_card

    def card_beside_the_other(facts: CardFacts) -> str:
        """Let the other export get as far as it can before this one writes its list."""
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(timeout=3)
        return real(facts)

    monkeypatch.setattr(export_module, "model_card", card_beside_the_other)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: export(run, name, out), ("safetensors", "timm")))
    formats = {"safetensors", "timm"} | (set() if is_new else {"torch-export"})
    assert set(json.loads((out / "export.json").read_text())["formats"]) == formats
    card = (out / "README.md").read_text()
    assert "### timm" in card
    assert "### torch: model.py" in card
    assert not [path for path in (*out.iterdir(), *tmp_path.iterdir()) if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("backbone", "words", "said"),
    [
        ("resnet_mini", ("--format", "timm"), "resnet_mini is no architecture of timm; take safetensors"),
        ("resnet18", ("--format", "onnx,timm"), "timm has no resnet18 with the stem for small images"),
        ("resnet_mini", ("--format", "onxn"), "no format is called 'onxn': choose among safetensors, timm, onnx"),
        ("resnet_mini", ("--format", ""), "no format is called ''"),
        (
            "resnet_mini",
            ("--normalize",),
            "normalize is for graphs: give --format onnx or torch-export",
        ),
        ("resnet_mini", ("--data", "digits"), "data is for formats that calibrate: give --format onnx-int8"),
        ("resnet_mini", ("--out", "{file}"), "exists and is not an export"),
        ("resnet_mini", ("--out", "{file}/export"), "cannot be written"),
        ("resnet_mini", ("--out", "{folder}"), "exists and is not an export"),
        ("resnet_mini", ("--out", "{run}"), "exists and is not an export"),
        ("resnet_mini", ("--out", "x" * 300), "cannot be written"),
    ],
)
def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], backbone: str, words: tuple[str, ...], said: str
) -> None:
    run = untrained_run(tmp_path / "run", backbone, 32)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "mine.txt").touch()
    places = {name: str(tmp_path / name) for name in ("run", "folder", "file")}
    before = sorted(tmp_path.rglob("*"))
    assert main(["export", str(run), *(word.format(**places) for word in words)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_timm_is_refused_for_swins_because_it_misreads_them() -> None:
    """What the refusal says is so: their file, read back by timm, lacks parameters."""
    module = build_backbone("swin_tiny", 8, seed=0)
    views = Views("paper", 8, 0, MEAN[:3], STD[:3])
    encoder = ExportedEncoder(module, describe_backbone("swin_tiny", 8), views)
    assert "timm misreads the weights of a swin_tiny" in export_formats()["timm"].refusal(encoder)
    config = {"state_dict": module.state_dict(), "num_classes": 0}
    with pytest.raises(RuntimeError, match="Missing key"):
        timm.create_model(
            encoder.recipe["model"], pretrained=True, pretrained_cfg=config, **encoder.recipe["arguments"]
        )


def test_a_missing_package_is_named_before_anything_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_format, "find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(UserError, match=r"needs onnxscript: pip install 'dualtemp\[onnx\]'"):
        export(tmp_path / "no run at all", "onnx")


def test_an_export_that_fails_half_way_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = untrained_run(tmp_path / "run", "resnet_mini", 32)
    folder = export(run)
    before = {path: path.read_bytes() for path in folder.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch.export, "save", full)
    for out in (folder, tmp_path / "new" / "folder"):
        with pytest.raises(UserError, match="No space left"):
            export(run, ("safetensors", "torch-export"), out)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert not (tmp_path / "new").exists()


def test_an_export_that_gives_other_features_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = untrained_run(tmp_path / "run", "resnet_mini", 32)
    real = builder.builder
    monkeypatch.setattr(builder, "builder", lambda *given: real(*given).replace("x.mean((2, 3))", "x.amax((2, 3))"))
    with pytest.raises(UserError, match="gives other features than the run's encoder"):
        export(run)
    assert not (run / "export").exists()


def test_the_command_says_what_was_written_and_how_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = untrained_run(tmp_path / "run", "resnet_mini", 32)
    assert main(["export", str(run), "--out", str(tmp_path / "new" / "it")]) == 0
    out = capsys.readouterr().out
    assert re.search(r"safetensors +model.safetensors, model.py +features within 0 of the run's", out)
    assert str(tmp_path / "new" / "it") in out
    assert "dualtemp" not in (tmp_path / "new" / "it" / "model.py").read_text()


NEW_FORMAT = """
import torch
from dualtemp.exporting.export_format import ExportFormat, LoadingText

def write(encoder, folder):
    torch.save(encoder.backbone.state_dict(), folder / "weights.pt")

def read(encoder, folder):
    encoder.backbone.load_state_dict(torch.load(folder / "weights.pt"))
    return lambda pixels: encoder.backbone(encoder.views.normalize(pixels))

def how_to_load(entry, recipe, how):
    return [LoadingText("pickle", f"A state dict of {recipe['model']}, {entry['bytes']}.", "import torch")]

FORMAT = ExportFormat("pickle", ("weights.pt",), write, read, how_to_load, facts={"bytes": "unsafe"})
"""


@contextlib.contextmanager
def one_more_format(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> Iterator[None]:
    (folder / "pickle.py").write_text(text)
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(folder)])
    export_formats.cache_clear()
    try:
        yield
    finally:
        export_formats.cache_clear()
        sys.modules.pop("dualtemp.exporting.formats.pickle")


def test_a_new_format_is_one_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = untrained_run(tmp_path / "run", "resnet_mini", 32)
    with one_more_format(monkeypatch, tmp_path, NEW_FORMAT):
        assert main(["export", "--help"]) == 0
        assert "pickle, safetensors, timm, onnx, onnx-int8, onnx-web, torch-export, or all" in " ".join(
            capsys.readouterr().out.split()
        )
        assert main(["export", str(run), "--format", "pickle"]) == 0
        assert re.search(r"pickle +weights.pt +features within 0 of the run's", capsys.readouterr().out)
        assert json.loads((run / "export" / "export.json").read_text())["formats"]["pickle"]["bytes"] == "unsafe"
        assert "### pickle\n\nA state dict of resnet_mini, unsafe." in (run / "export" / "README.md").read_text()


def test_all_leaves_out_a_format_that_fails_and_its_own_name_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = untrained_run(tmp_path / "run", "resnet_mini", 32)
    failing = NEW_FORMAT.replace("return lambda pixels: encoder", "return lambda pixels: 2 * encoder")
    with one_more_format(monkeypatch, tmp_path, failing):
        assert main(["export", str(run), "--format", "all"]) == 0
        told = capsys.readouterr()
        assert "left out: --format pickle: the exported resnet_mini gives other features" in told.err
        assert "nothing was written" not in told.err
        assert re.search(r"^pickle +left out: this encoder cannot be exported in it", told.out, re.M)
        written = {"safetensors", "onnx", "torch-export"}
        assert set(json.loads((run / "export" / "export.json").read_text())["formats"]) == written
        assert not (run / "export" / "weights.pt").exists()
        for asked in ("all,pickle", "pickle"):
            assert main(["export", str(run), "--format", asked, "--out", str(tmp_path / "out")]) == 2
            assert "--format pickle: the exported resnet_mini gives other features" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_the_former_spelling_of_normalize_works_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = untrained_run(tmp_path / "run", "resnet_mini", 32)
    with pytest.warns(DeprecationWarning, match="'normalise' of export is now 'normalize'"), pytest.raises(UserError):
        dualtemp.export(run, normalise=True)  # pyright: ignore[reportCallIssue]
    assert main(["export", str(run), "--normalise"]) == 2
    assert capsys.readouterr().err.startswith("dualtemp: --normalise is now --normalize\ndualtemp: normalize is for")


@pytest.fixture(scope="module")
def approximated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits' encoder for browsers and in 8 bits."""
    return export(trained, ("onnx-web", "onnx-int8"), tmp_path_factory.mktemp("approximated") / "it", data="digits")


@pytest.mark.slow
def test_eight_bits_are_compared_on_images_that_did_not_calibrate_them_and_the_card_says_how(
    approximated: Path, trained: Path
) -> None:
    import onnx
    import onnxruntime

    entry = json.loads((approximated / "export.json").read_text())["formats"]["onnx-int8"]
    kinds = {each.data_type for each in onnx.load(approximated / "model.int8.onnx").graph.initializer}
    assert onnx.TensorProto.INT8 in kinds
    encoder = run_encoder(trained, "cpu")
    images = open_source("digits").test
    assert images is not None
    views = torch.cat([each.pixels for each in evaluation_batches(images.take(range(100)), encoder.views, 100)])
    wanted = encoder.of_views(views).numpy()
    session = onnxruntime.InferenceSession(approximated / "model.int8.onnx")
    found = np.asarray(session.run(None, {"images": views.numpy()})[0])
    cosines = (wanted * found).sum(1) / np.linalg.norm(wanted, axis=1) / np.linalg.norm(found, axis=1)
    assert cosines.mean() == pytest.approx(entry["cosine"], abs=0.02)
    assert 0.95 < entry["cosine"] < 1
    assert entry["compared_on"] == 128
    assert f"their mean cosine with the float encoder's is {entry['cosine']:.4f}" in (
        approximated / "README.md"
    ).read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_graph_for_browsers_takes_the_pixels_of_a_canvas(approximated: Path, trained: Path) -> None:
    import onnxruntime

    encoder = run_encoder(trained, "cpu")
    rng = np.random.default_rng(0)
    gray = rng.integers(0, 256, (3, 8, 8, 1), dtype=np.uint8)
    rgba = np.concatenate((gray, gray, gray, rng.integers(0, 256, (3, 8, 8, 1), dtype=np.uint8)), 3)
    session = onnxruntime.InferenceSession(approximated / "model.web.onnx")
    found = np.asarray(session.run(None, {"pixels": rgba})[0])
    wanted = encoder.of_views(encoder.views.normalize(torch.from_numpy(gray).permute(0, 3, 1, 2)))
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-4)
    assert "const SIZE = 8, SHORTER = 8;" in (approximated / "encoder.js").read_text()


@pytest.mark.slow
def test_eight_bits_without_an_image_or_too_far_from_the_encoder_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: Path
) -> None:
    from local_starts import write_timm_folder

    start = write_timm_folder(tmp_path / "start")
    with pytest.raises(UserError, match="--format onnx-int8: needs images to calibrate with: give --data"):
        export(start, "onnx-int8", tmp_path / "out")
    monkeypatch.setattr(write_format, "LEAST_COSINE", 1.01)
    with pytest.raises(UserError, match=r"1\.01 is needed; take another format"):
        export(trained, "onnx-int8", tmp_path / "out", data="digits")
    assert not (tmp_path / "out").exists()


def test_an_export_that_was_killed_in_an_empty_folder_does_not_stop_the_next(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / ".out.abc.unfinished").mkdir(parents=True)
    assert (export(trained, "safetensors", tmp_path / "out") / "model.safetensors").is_file()
    (tmp_path / "other" / "photos").mkdir(parents=True)
    with pytest.raises(UserError, match="exists and is not an export"):
        export(trained, "safetensors", tmp_path / "other")


KILLED = """
import sys, time, dualtemp
dualtemp.export(sys.argv[1], out=sys.argv[2], note=lambda line: (print(line, flush=True), time.sleep(600)))
"""


def test_what_a_killed_export_leaves_is_removed_by_the_next_and_not_before(tmp_path: Path) -> None:
    run, out = untrained_run(tmp_path / "run", "resnet_mini", 32), tmp_path / "out"
    words = [sys.executable, "-c", KILLED, str(run), str(out)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("safetensors")
        assert len(list(tmp_path.glob(".out.*"))) == 1
        export(run, "safetensors", out)
        assert len(list(tmp_path.glob(".out.*"))) == 1, "it belongs to a living process"
        process.kill()
    assert len(list(tmp_path.glob(".out.*"))) == 1
    export(run, "torch-export", out)
    assert not list(tmp_path.glob(".out.*"))
    assert not list(out.glob(".*"))


def test_an_export_that_begins_while_another_takes_its_lock_leaves_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, others, take = tmp_path / "out", list[threading.Thread](), file_lock._try_lock

    def begin_and_end_another() -> None:
        with workshop(out):
            pass

    def try_lock(file: BinaryIO, shared: bool = False) -> bool:
        if Path(file.name).name == LOCK and not others:
            others.append(threading.Thread(target=begin_and_end_another))
            others[0].start()
            others[0].join(1)  # it waits for the folder's lock, longer than this
        return take(file, shared)

    monkeypatch.setattr(file_lock, "_try_lock", try_lock)
    with workshop(out) as fresh:
        others[0].join(PATIENCE)
        assert fresh.is_dir()
    assert not list(tmp_path.iterdir())


def test_a_format_that_is_asked_for_beside_all_is_not_left_out_in_silence(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run", "resnet18", 32)
    with pytest.raises(UserError, match="timm has no resnet18 with the stem for small images"):
        export(run, "all,timm", tmp_path / "out")


def test_class_folders_whose_names_are_no_text_are_in_the_card(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run", "resnet_mini", 24)
    environment = json.loads((run / "environment.json").read_text())
    environment["images"]["classes"] = [os.fsdecode(b"caf\xe9"), "dog"]
    (run / "environment.json").write_text(json.dumps(environment))
    out = export(run, "safetensors", tmp_path / "out")
    assert "2 classes: caf\\xe9, dog" in (out / "README.md").read_text(encoding="utf-8")


def test_graphs_do_not_tell_where_this_machine_keeps_its_packages(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run", "resnet_mini", 32)
    out = export(run, ("onnx", "torch-export"), tmp_path / "out")
    with zipfile.ZipFile(out / "model.pt2") as archive:
        contents = [archive.read(name) for name in archive.namelist()]
    places = [str(Path(package.__file__ or "").parents[1]).encode() for package in (dualtemp, torch)]
    for content in (*contents, (out / "model.onnx").read_bytes()):
        assert not [place for place in places if place in content]

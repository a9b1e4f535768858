"""The classifier of a run goes along with its encoder, and the card's program answers as `predict` does."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_photos import draw_photos

import dualtemp
from dualtemp.cli import main
from dualtemp.config import complete, settings
from dualtemp.data.loading.loader import evaluation_batches
from dualtemp.encoder.encoder import run_encoder
from dualtemp.encoder.image_list import listed
from dualtemp.evaluation.classifier import fit_classifier
from dualtemp.evaluation.classifier_file import CLASSIFIER_FILE, classifier_bytes, load_classifier, save_classifier
from dualtemp.exporting.export import formats_in
from dualtemp.exporting.exported_encoder import ClassifyingEncoder
from dualtemp.exporting.loading import how_to_classify
from dualtemp.models import build_backbone, save_backbone
from dualtemp.runs.folder import RunFolder
from dualtemp.training.run_encoder import onnx_encoder

ALONE = """
import sys
import numpy as np
class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("dualtemp", "torch"): raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
"""
# Features come as an array, as every format gives them; what follows is the card's.
PROGRAM = f"""{ALONE}features = np.load("features.npy")
exec(open("classify.py").read())
np.savez("found.npz", probabilities=probabilities, answers=np.array(answers))
"""


def test_the_cards_program_answers_as_predict_does_without_dualtemp(run_copy: Path, tmp_path: Path) -> None:
    draw_photos(tmp_path / "new", 8, first=900)
    found = dualtemp.predict(run_copy, tmp_path / "new", device="cpu", workers=0)
    assert found.predictions is not None
    assert found.classifier is not None
    folder = dualtemp.export(run_copy, out=tmp_path / "export")
    assert json.loads((folder / "export.json").read_text())["classifier"]["classes"] == ["cat", "dog"]
    card = (folder / "README.md").read_text()
    (folder / "classify.py").write_text(re.findall("### Classify.*?```python\n(.*?)```", card, re.DOTALL)[0])
    np.save(folder / "features.npy", found.features.numpy())
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    theirs = np.load(folder / "found.npz")
    np.testing.assert_allclose(theirs["probabilities"], found.predictions.probabilities, atol=1e-5)
    names = [*found.classifier.classes, "none of these"]
    assert theirs["answers"].tolist() == [names[label] for label in found.predictions.label.tolist()]


def test_card_and_graph_leave_out_a_score_that_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    g = np.random.default_rng(0)
    made = fit_classifier(3 + g.normal(size=(8, 32)).astype(np.float32), np.arange(8), list("abcdefgh"))
    assert made.spread[1, 0] == np.inf
    features = torch.tensor(g.normal(size=(20, 32)) + 3 * (np.arange(20) % 2)[:, None], dtype=torch.float32)
    ours = made.predict(features)
    _, probabilities, novelty = ClassifyingEncoder(torch.nn.Identity(), made)(features)
    torch.testing.assert_close(probabilities, ours.probabilities)
    torch.testing.assert_close(novelty, ours.novelty, rtol=1e-4, atol=1e-4)
    save_classifier(tmp_path / CLASSIFIER_FILE, made)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"features": features.numpy()}
    exec(how_to_classify(CLASSIFIER_FILE), names)
    assert names["answers"] == [[*made.classes, "none of these"][label] for label in ours.label.tolist()]
    assert "none of these" in names["answers"]


def test_a_classifier_of_other_weights_is_not_exported_and_an_earlier_one_goes(run_copy: Path, tmp_path: Path) -> None:
    draw_photos(tmp_path / "new", 2, first=900)
    dualtemp.predict(run_copy, tmp_path / "new", device="cpu", workers=0)
    folder = dualtemp.export(run_copy)
    exported, kept = (load_classifier(where / CLASSIFIER_FILE) for where in (folder, run_copy))
    assert classifier_bytes(exported.with_facts(data=kept.facts["data"])) == classifier_bytes(kept)
    assert exported.facts["data"] == Path(kept.facts["data"]).name, "and not where it lay"
    save_classifier(
        run_copy / CLASSIFIER_FILE, load_classifier(run_copy / CLASSIFIER_FILE).with_facts(backbone="other")
    )
    dualtemp.export(run_copy)
    assert not (folder / CLASSIFIER_FILE).exists()
    assert "Classify" not in (folder / "README.md").read_text()
    assert "classifier" not in json.loads((folder / "export.json").read_text())


ANSWERING = f"""{ALONE}images = np.load("images.npy")
exec(open("onnx_program.py").read())
np.savez("found.npz", features=features, probabilities=probabilities, novelty=novelty, answers=np.array(answers))
"""


@pytest.mark.slow
@pytest.mark.parametrize("which", ["probe", "fine-tuned"])
def test_a_graph_answers_as_predict_does_without_dualtemp(which: str, run_copy: Path, tmp_path: Path) -> None:
    draw_photos(tmp_path / "new", 8, first=900)
    measure = {"probe": {"only": "probe"}, "fine-tuned": {"only": "fine-tune", "fine_tune_epochs": 2}}[which]
    dualtemp.evaluate(run_copy, **measure, quiet=True, device="cpu", workers=0)
    found = dualtemp.predict(run_copy, tmp_path / "new", classifier=which, device="cpu", workers=0)
    assert found.predictions is not None
    assert found.classifier is not None
    folder = dualtemp.export(run_copy, "onnx", classifier=which)
    assert folder == run_copy / {"probe": "export", "fine-tuned": "export-fine-tuned"}[which]
    own = run_encoder(run_copy, "cpu")
    images = evaluation_batches(listed(tmp_path / "new").images, own.views, workers=0)
    np.save(folder / "images.npy", torch.cat([each.pixels for each in images]).numpy())
    card = (folder / "README.md").read_text()
    assert ("then fine-tuned with labels" in card) == (which == "fine-tuned")
    (folder / "onnx_program.py").write_text(re.findall("### onnxruntime.*?```python\n(.*?)```", card, re.DOTALL)[0])
    words = [sys.executable, "-c", ANSWERING]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    theirs = np.load(folder / "found.npz")
    np.testing.assert_allclose(theirs["features"], found.features, atol=1e-4)
    np.testing.assert_allclose(theirs["probabilities"], found.predictions.probabilities, atol=1e-4)
    np.testing.assert_allclose(theirs["novelty"], found.predictions.novelty, rtol=1e-3, atol=1e-2)
    names = [*found.classifier.classes, "none of these"]
    assert theirs["answers"].tolist() == [names[label] for label in found.predictions.label.tolist()]
    assert json.loads((folder / "export.json").read_text())["formats"]["onnx"]["probability_difference"] < 1e-4
    teacher = onnx_encoder(folder / "model.onnx")
    assert teacher.width == found.features.shape[1], "a graph that classifies is a teacher all the same"
    dualtemp.export(run_copy, "safetensors", out=folder, classifier=which)
    assert list(formats_in(folder)) == ["safetensors", "onnx"]


@pytest.mark.slow
def test_a_graph_with_another_classifier_than_the_one_beside_it_is_removed(run_copy: Path) -> None:
    dualtemp.evaluate(run_copy, only="probe", quiet=True, device="cpu", workers=0)
    folder = dualtemp.export(run_copy, "onnx", classifier="probe")
    kept = load_classifier(run_copy / CLASSIFIER_FILE)
    save_classifier(run_copy / CLASSIFIER_FILE, replace(kept, bias=kept.bias + 1))
    dualtemp.export(run_copy, "safetensors")
    assert list(formats_in(folder)) == ["safetensors"]
    assert not (folder / "model.onnx").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--classifier", "probe"], "keeps no probe classifier of its present weights"),
        (["--classifier", "fine-tuned"], "--only fine-tune` makes it"),
        (["--classifier", "knn"], "no classifier is called 'knn': take probe or fine-tuned"),
    ],
)
def test_a_classifier_that_is_not_there_is_one_line(words: list[str], message: str, run_copy: Path, capsys) -> None:
    assert main(["export", str(run_copy), "--format", "onnx", *words]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not list(run_copy.glob("export*"))


@pytest.mark.parametrize("format", ["safetensors", "timm"])
def test_a_classifier_that_no_format_carries_inside_is_said_to_lie_beside_it(format: str, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    images = {"channels": 3, "size": 64, "mean": [0.5] * 3, "std": [0.25] * 3, "classes": ["cat", "dog"]}
    with run.create(complete(settings({"data": "cifar10", "backbone": "resnet18"}), 64), {"images": images}):
        save_backbone(run.backbone, build_backbone("resnet18", 64, seed=1))
    g, encoder = np.random.default_rng(0), run_encoder(run.path, "cpu")
    features = g.normal(size=(40, encoder.width)) + 3 * (np.arange(40) % 2)[:, None]
    made = fit_classifier(features.astype(np.float32), np.arange(40) % 2, ["cat", "dog"])
    save_classifier(run.path / CLASSIFIER_FILE, made.with_facts(backbone=encoder.fingerprint))
    said: dict[str | None, str] = {}
    for classifier in ("probe", None):
        lines: list[str] = []
        folder = dualtemp.export(run.path, format, tmp_path / "out", classifier=classifier, note=lines.append)
        said[classifier] = "\n".join(lines)
        assert load_classifier(folder / CLASSIFIER_FILE).classes == ("cat", "dog")
        assert "### Classify" in (folder / "README.md").read_text()
    assert f"the classifier is written beside the encoder, as {CLASSIFIER_FILE}" in said["probe"]
    assert "only onnx and onnx-web carry it" in said["probe"]
    assert "classifier" not in said[None]

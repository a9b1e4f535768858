"""What fine-tuning learned stays in the run: calibrated, used by `predict`, and never taken for other weights."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_processes import Commands, halting, kill_where_it_halts
from drawn_photos import draw_photos
from safetensors.torch import load_file
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from torch import nn

import dualtemp
from dualtemp.data.loading.loader import evaluation_batches
from dualtemp.encoder.encoder import run_encoder
from dualtemp.encoder.fine_tuned import HEAD_FILE, WEIGHTS_FILE, fine_tuned
from dualtemp.encoder.image_list import listed
from dualtemp.errors import UserError
from dualtemp.evaluation.calibration import cautious_temperature
from dualtemp.evaluation.classifier_file import load_classifier
from dualtemp.evaluation.tuned_classifier import tuned_classifier
from dualtemp.models import build_backbone, save_backbone

SMALL = {"device": "cpu", "workers": 0}


@pytest.fixture(scope="module")
def tuned_once(photos_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = shutil.copytree(photos_run, tmp_path_factory.mktemp("tuned") / "run")
    dualtemp.evaluate(run, only="probe,fine-tune", fine_tune_epochs=2, quiet=True, **SMALL)
    return run


@pytest.fixture
def tuned_run(tuned_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tuned_once, tmp_path / "run")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    draw_photos(tmp_path / "new", 6, first=900)
    return tmp_path / "new"


def noisy(count: int = 400, sharpness: float = 3.0) -> tuple[nn.Linear, torch.Tensor, torch.Tensor]:
    """A layer that is too sure of itself, features and labels of which some are not what the features say."""
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 3
    x = torch.eye(5)[labels] * 2 + torch.randn(count, 5, generator=g)
    head = nn.Linear(5, 3)
    nn.init.zeros_(head.bias)
    head.weight.data = sharpness * torch.eye(3, 5)
    return head, x, labels


def test_temperature_and_threshold_come_from_the_validation_images() -> None:
    head, x, y = noisy()
    made = tuned_classifier(head, x[:50], x, y, ("a", "b", "c"), unknown_rate=0.1)
    z = (x @ head.weight.T).detach().double().numpy()

    def cross_entropy(log_t: float) -> float:
        return -log_softmax(z / np.exp(log_t), 1)[np.arange(len(z)), y].mean()

    best: Any = minimize_scalar(cross_entropy, bounds=(-3, 3), method="bounded", options={"xatol": 1e-7})
    assert made.temperature == pytest.approx(np.exp(best.x), rel=1e-3)
    assert made.temperature > 1.2, "too sure of itself"
    found = made.predict(x)
    np.testing.assert_allclose(found.probabilities, softmax(z / made.temperature, 1), atol=1e-5)
    assert (found.label < 0).double().mean().item() == pytest.approx(0.1, abs=0.005)
    assert made.facts["ece"] < made.facts["ece_before"]
    never = tuned_classifier(head, x[:50], x, y, ("a", "b", "c"), unknown_rate=0)
    assert (never.predict(x + 100).label >= 0).all()


def test_a_name_of_a_class_that_has_no_image_is_no_obstacle(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1), dtype=np.uint8)
    np.savez(tmp_path / "in.npz", images=images, labels=np.arange(60) % 2, classes=["a", "b", "c"])
    np.savez(tmp_path / "new.npz", images=images[:5] // 2)
    how = {"backbone": "resnet_mini", "epochs": 1, "batch": 16, "threads": 1, "quiet": True, "page": False}
    dualtemp.train(data=str(tmp_path / "in.npz"), out=tmp_path / "run", **how, **SMALL)
    dualtemp.evaluate(tmp_path / "run", only="fine-tune", fine_tune_epochs=1, quiet=True, **SMALL)
    found = dualtemp.predict(tmp_path / "run", tmp_path / "new.npz", classifier="fine-tuned", **SMALL)
    assert found.classifier is not None
    assert found.classifier.classes == ("a", "b")


def test_all_right_is_no_reason_to_be_surer() -> None:
    logits, labels = 2 * torch.eye(3), torch.arange(3)
    assert cautious_temperature(logits, labels) == 1.0
    assert cautious_temperature(logits, labels.roll(1)) > 1.0


def test_predict_answers_with_the_fine_tuned_weights(tuned_run: Path, new: Path, tmp_path: Path) -> None:
    found = dualtemp.predict(tuned_run, new, classifier="fine-tuned", **SMALL)
    kept = load_classifier(tuned_run / HEAD_FILE)
    own = run_encoder(tuned_run, "cpu")
    backbone = build_backbone("resnet_mini", 24, 3, seed=5)
    backbone.load_state_dict(load_file(tuned_run / WEIGHTS_FILE))
    dualtemp.embed(tuned_run, data=new, out=tmp_path / "of-the-run.npz", **SMALL)
    before = np.load(tmp_path / "of-the-run.npz")["features"]
    assert np.abs(found.features.numpy() - before).max() > 1e-3, "other weights than the run's"
    pixels = torch.cat([each.pixels for each in evaluation_batches(listed(new).images, own.views, workers=0)])
    with torch.no_grad():
        features = backbone.eval()(pixels).double().numpy()
    logits = features @ kept.weight.double().numpy().T + kept.bias.double().numpy()
    assert found.predictions is not None
    np.testing.assert_allclose(found.predictions.probabilities, softmax(logits / kept.temperature, 1), atol=1e-4)
    assert kept.facts["images"] == 24
    assert kept.facts["tested"] == 10
    assert kept.facts["begun_from"] == own.fingerprint
    row = next(r for r in json.loads((tuned_run / "evaluation.json").read_text())["measured"] if "fine" in r["name"])
    assert row["top1"] == pytest.approx(100 * kept.facts["accuracy"])


def test_auto_takes_what_was_right_more_often_and_says_so(tuned_run: Path, new: Path) -> None:
    path = tuned_run / "evaluation.json"
    mine = 100 * load_classifier(tuned_run / HEAD_FILE).facts["accuracy"]

    def answered_by(probe: float | None) -> tuple[torch.Tensor, str]:
        content = json.loads(path.read_text())
        for row in content["measured"]:
            if (row["name"], row["encoder"]) == ("linear probe", "trained"):
                row["top1"], row["data"] = probe, "validation" if probe is not None else "elsewhere"
        path.write_text(json.dumps(content))
        said: list[str] = []
        found = dualtemp.predict(tuned_run, new, **SMALL, note=said.append)
        assert found.predictions is not None
        return found.predictions.probabilities, " ".join(said)

    probe, tuned = (
        dualtemp.predict(tuned_run, new, classifier=name, **SMALL).predictions for name in ("probe", "fine-tuned")
    )
    assert probe is not None
    assert tuned is not None
    below, said = answered_by(mine - 1)
    assert torch.equal(below, tuned.probabilities)
    assert "by the fine-tuned network" in said
    above, said = answered_by(mine)
    assert torch.equal(above, probe.probabilities)
    assert "by the probe" in said
    unknown, _ = answered_by(None)
    assert torch.equal(unknown, tuned.probabilities)


def test_a_run_that_has_gone_on_has_no_fine_tuned_network(tuned_run: Path, new: Path) -> None:
    save_backbone(tuned_run / "backbone.safetensors", build_backbone("resnet_mini", 24, 3, seed=9))
    assert fine_tuned(run_encoder(tuned_run, "cpu")) is None
    assert dualtemp.predict(tuned_run, new, **SMALL).predictions is not None
    with pytest.raises(UserError, match="keeps no fine-tuned network of its present weights"):
        dualtemp.predict(tuned_run, new, classifier="fine-tuned", **SMALL)


def test_damaged_it_is_passed_over_unless_it_is_asked_for(tuned_run: Path, new: Path) -> None:
    (tuned_run / WEIGHTS_FILE).write_bytes((tuned_run / WEIGHTS_FILE).read_bytes()[:-9])
    said: list[str] = []
    assert dualtemp.predict(tuned_run, new, **SMALL, note=said.append).predictions is not None
    assert [line for line in said if "not a whole safetensors file" in line]
    with pytest.raises(UserError, match="not a whole safetensors file"):
        dualtemp.predict(tuned_run, new, classifier="fine-tuned", **SMALL)


def test_it_is_not_asked_about_images_that_it_has_learned(tuned_run: Path, photos: Path) -> None:
    with pytest.raises(UserError, match="knows the labels of its training images"):
        dualtemp.predict(tuned_run, photos, classifier="fine-tuned", **SMALL)
    with pytest.raises(UserError, match="did you mean 'fine-tuned'"):
        dualtemp.predict(tuned_run, photos, classifier="finetuned", **SMALL)


def test_measured_on_other_images_it_is_not_kept(run_copy: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(photos)
    words = {"only": "fine-tune", "fine_tune_epochs": 1, "quiet": True}
    dualtemp.evaluate(run_copy, tmp_path / "other", **words, **SMALL)
    assert not (run_copy / WEIGHTS_FILE).exists()


@pytest.mark.slow
def test_killed_between_its_files_the_earlier_answers_stay_until_it_is_made_anew(
    tuned_run: Path, new: Path, commands: Commands
) -> None:
    words = ("evaluate", tuned_run, "--only", "fine-tune", "--device", "cpu", "--workers", "0", "--fine-tune-epochs")
    kill_where_it_halts(commands.start(*words, "3", first=halting(".fine_tuned_classifier*")))
    assert fine_tuned(run_encoder(tuned_run, "cpu")) is None, "weights of one, classifier of the other"
    assert dualtemp.predict(tuned_run, new, **SMALL).predictions is not None
    ended = commands.start(*words, "3").wait()
    assert ended.code == 0, ended
    assert fine_tuned(run_encoder(tuned_run, "cpu")) is not None
    assert not list(tuned_run.glob(".fine_tuned*"))

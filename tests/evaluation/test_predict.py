"""`predict`: the run's classifier is kept and used, a start learns on the spot, and every output says the same."""

import csv
import json
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from command_processes import Commands, halting, kill_where_it_halts
from drawn_photos import draw_photos
from PIL import Image

import dualtemp
from dualtemp.cli import main
from dualtemp.data.sources.npz import write_npz
from dualtemp.encoder.encoder import RunEncoder
from dualtemp.encoder.image_list import listed
from dualtemp.errors import UserError
from dualtemp.evaluation import predict as predict_module
from dualtemp.evaluation.classifier import fit_classifier
from dualtemp.evaluation.classifier_file import CLASSIFIER_FILE, load_classifier, save_classifier
from dualtemp.evaluation.prediction_files import write_predictions

SMALL = {"device": "cpu", "workers": 0}


def colored(folder: Path, count: int, color: int, first: int = 0) -> None:
    """Photos of which one channel is bright, so that any encoder can tell them by it."""
    folder.mkdir(parents=True, exist_ok=True)
    g = np.random.default_rng(first + 1000 * color)
    for number in range(first, first + count):
        pixels = g.integers(0, 60, (40, 40, 3), dtype=np.uint8)
        pixels[..., color] += 180
        Image.fromarray(pixels).save(folder / f"{number:03}.png")


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """Thirty red and thirty green photos in one folder; twenty of them are in labels.csv, one of these wrong."""
    root = tmp_path / "flat"
    colored(root, 30, 0)
    colored(root, 30, 1, first=30)
    rows = [(f"{i:03}.png", "red") for i in range(10)] + [(f"{i:03}.png", "green") for i in range(30, 40)]
    rows[3] = ("003.png", "green")
    (root / "labels.csv").write_text("file,label\n" + "".join(f"{name},{label}\n" for name, label in rows))
    return root


def test_a_run_keeps_its_classifier_and_predicts_with_it(run_copy: Path, photos: Path, tmp_path: Path) -> None:
    draw_photos(tmp_path / "new", 6, first=900)
    said: list[str] = []
    found = dualtemp.predict(run_copy, tmp_path / "new", **SMALL, note=said.append)
    assert [text for text in said if text.startswith("making the classifier")]
    kept = load_classifier(run_copy / CLASSIFIER_FILE)
    dualtemp.embed(run_copy, data=tmp_path / "new", out=tmp_path / "new.npz", **SMALL)
    features = np.load(tmp_path / "new.npz")["features"]
    z = (features - kept.mean.numpy()) / kept.scale.numpy()
    logits = (z @ kept.weight.numpy().T + kept.bias.numpy()) / kept.temperature
    p = np.exp(logits - logits.max(1, keepdims=True))
    assert found.predictions is not None
    np.testing.assert_allclose(found.predictions.probabilities, p / p.sum(1, keepdims=True), atol=1e-4)
    assert kept.classes == ("cat", "dog")
    assert kept.facts["images"] == 24
    said.clear()
    again = dualtemp.predict(run_copy, tmp_path / "new", **SMALL, note=said.append)
    assert not [text for text in said if text.startswith("making")]
    assert again.predictions is not None
    assert torch.equal(again.predictions.probabilities, found.predictions.probabilities)
    assert found.measured == {}
    assert dualtemp.predict(run_copy, photos, **SMALL).measured["images"] == 10, "the run's own test part"


def test_a_run_whose_images_of_a_class_can_no_longer_be_read_is_one_line(
    run_copy: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = shutil.copytree(photos, tmp_path / "own")
    for path in (own / "train" / "dog").iterdir():
        path.write_bytes(b"no image")
    config = run_copy / "config.yaml"
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "data": str(own)}))
    draw_photos(tmp_path / "new", 2, first=900)
    words = ["predict", str(run_copy), "--data", str(tmp_path / "new"), "--device", "cpu", "--workers", "0"]
    assert main(words) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "class 'dog' has test images but none to learn from that can be read" in last
    assert not (run_copy / CLASSIFIER_FILE).exists()


def test_a_classifier_of_other_weights_or_a_damaged_one_is_made_anew(run_copy: Path, tmp_path: Path) -> None:
    draw_photos(tmp_path / "new", 2, first=900)
    dualtemp.predict(run_copy, tmp_path / "new", **SMALL)
    path = run_copy / CLASSIFIER_FILE
    whole = path.read_bytes()
    save_classifier(path, load_classifier(path).with_facts(backbone="another"))
    dualtemp.predict(run_copy, tmp_path / "new", **SMALL)
    assert path.read_bytes() == whole
    path.write_bytes(whole[: len(whole) // 2])
    said: list[str] = []
    dualtemp.predict(run_copy, tmp_path / "new", **SMALL, note=said.append)
    assert path.read_bytes() == whole
    assert [text for text in said if "no classifier that can be read" in text]


def test_evaluate_keeps_the_classifier_that_predict_takes(run_copy: Path, tmp_path: Path) -> None:
    dualtemp.evaluate(run_copy, only="probe", quiet=True, **SMALL)
    kept = (run_copy / CLASSIFIER_FILE).read_bytes()
    draw_photos(tmp_path / "new", 2, first=900)
    said: list[str] = []
    dualtemp.predict(run_copy, tmp_path / "new", **SMALL, note=said.append)
    assert not [text for text in said if text.startswith("making")]
    assert (run_copy / CLASSIFIER_FILE).read_bytes() == kept


def test_a_start_learns_from_a_csv_predicts_the_rest_and_finds_the_wrong_label(
    flat: Path, timm_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outs = [tmp_path / f"found.{ending}" for ending in ("csv", "json", "html", "parquet")]
    words = [word for out in outs for word in ("--out", str(out))]
    options = ["--unknown-rate", "0", "--clusters", "2", "--workers", "0", "--device", "cpu"]
    assert main(["predict", str(timm_folder), "--data", str(flat), *options, *words]) == 0
    out = capsys.readouterr().out
    assert "learned from 18 of these images" in out
    rows = list(csv.DictReader(outs[0].open()))
    assert [row["name"] for row in rows] == [f"{i:03}.png" for i in range(60)]
    right = [row["prediction"] == ("red" if i < 30 else "green") for i, row in enumerate(rows)]
    assert np.mean(right) > 0.95
    assert [row["name"] for row in rows if row["suggested"]] == ["003.png"]
    assert rows[3]["suggested"] == "red"
    assert len({row["cluster"] for row in rows[:30]}) == 1
    whole = json.loads(outs[1].read_text())
    assert whole["suspected_wrong_labels"] == ["003.png"]
    assert [each["images"] for each in whole["clusters"]] == [30, 30]
    assert [each["prediction"] for each in whole["predictions"]] == [row["prediction"] for row in rows]
    page = outs[2].read_text()
    assert "1 suspected wrong label" in page
    assert "data:image/png" in page
    import pyarrow.parquet as pq

    table = pq.read_table(outs[3]).to_pylist()
    assert [each["confidence"] for each in table] == pytest.approx([float(row["confidence"]) for row in rows], abs=1e-5)


def test_strangers_are_none_of_these_and_labels_may_be_elsewhere(timm_folder: Path, tmp_path: Path) -> None:
    for color, name in enumerate(("red", "green")):
        colored(tmp_path / "known" / name, 30, color)
    colored(tmp_path / "new", 10, 0, first=100)
    colored(tmp_path / "new", 10, 2, first=200)
    found = dualtemp.predict(timm_folder, tmp_path / "new", learn=tmp_path / "known", **SMALL)
    assert found.predictions is not None
    assert (found.predictions.label[10:] < 0).all(), "blue was never seen"
    assert found.classifier is not None
    assert (found.predictions.label[:10] == found.classifier.classes.index("red")).float().mean() > 0.6
    assert found.wrong is None


def test_what_is_learned_from_the_images_themselves_is_not_measured_on_them(timm_folder: Path, tmp_path: Path) -> None:
    for color, name in enumerate(("red", "green")):
        colored(tmp_path / "known" / name, 30, color)
    expected = dualtemp.predict(timm_folder, tmp_path / "known", **SMALL)
    found = dualtemp.predict(timm_folder, tmp_path / "known", learn=f"{tmp_path}/known/", **SMALL)
    assert found.learned.tolist() == expected.learned.tolist()
    assert found.measured == expected.measured
    assert found.measured["images"] == 6  # the tenth of each class that is held out


def test_it_is_not_measured_on_copies_of_images_that_it_learned_from(timm_folder: Path, tmp_path: Path) -> None:
    for color, name in enumerate(("red", "green")):
        colored(tmp_path / "known" / name, 30, color)
        colored(tmp_path / "asked" / name, 7, color, first=100)
        for path in sorted((tmp_path / "known" / name).iterdir()):
            shutil.copy(path, tmp_path / "asked" / name / f"copy-{path.name}")
    told: list[str] = []
    asked = {"learn": tmp_path / "known", "note": told.append, **SMALL}
    found = dualtemp.predict(timm_folder, tmp_path / "asked", **asked)
    assert found.measured["images"] == 74 - 54  # nine tenths of the copies are of images that it learned from
    assert f"measured without 54 images whose copies it learned from, of {tmp_path / 'known'}" in told
    np.savez(tmp_path / "packed.npz", images=np.zeros((9, 8, 8, 3), np.uint8), labels=np.arange(9) % 2)
    assert dualtemp.predict(timm_folder, tmp_path / "packed.npz", **asked).measured == {}  # classes it does not know


@pytest.mark.parametrize("learned", ["files", "packed"])
def test_copies_are_found_between_image_files_and_pixels_in_memory(
    timm_folder: Path, tmp_path: Path, learned: str
) -> None:
    for color, name in enumerate(("red", "green")):
        colored(tmp_path / "files" / name, 30, color)
    Image.new("RGB", (50, 30), "red").save(tmp_path / "files" / "red" / "large.png")
    (tmp_path / "files" / "red" / "broken.png").write_bytes(b"broken")
    paths = sorted((tmp_path / "files").glob("*/0*.png"))
    copied, labels = np.stack([np.asarray(Image.open(path)) for path in paths]), np.repeat([0, 1], 30)
    others = copied.copy()
    others[:, 0, 0, 0] ^= 1  # a bit of one pixel
    arrays = np.concatenate([copied, others]), np.concatenate([labels, labels])
    write_npz(tmp_path / "packed.npz", *arrays, ("green", "red"))
    where = {"files": tmp_path / "files", "packed": tmp_path / "packed.npz"}
    asked = where["packed" if learned == "files" else "files"]
    told: list[str] = []
    found = dualtemp.predict(timm_folder, asked, learn=where[learned], note=told.append, **SMALL)
    images = listed(where[learned])
    known = {
        np.asarray(images.images.source.open(i)).tobytes()
        for i in range(len(images))
        if images.part(i) != "test" and not images.names[i].endswith("broken.png")
    }
    seen = [np.asarray(Image.open(path)).tobytes() in known for path in paths]
    assert 40 < sum(seen) < 60
    assert f"measured without {sum(seen)} images whose copies it learned from, of {where[learned]}" in told
    assert found.measured["images"] == (120 if learned == "files" else 61) - sum(seen)


def test_a_runs_classifier_is_not_measured_on_copies_of_its_training_images(run_copy: Path, photos: Path) -> None:
    told: list[str] = []
    found = dualtemp.predict(run_copy, photos / "train", **SMALL, note=told.append)
    assert found.measured == {}
    assert found.learned.all()
    assert f"measured without 24 images whose copies it learned from, of {photos}" in told
    assert dualtemp.predict(run_copy, photos / "test", **SMALL).measured["images"] == 10


def test_a_named_set_is_not_fetched_to_look_for_copies_in_it(
    run_copy: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dualtemp.evaluate(run_copy, only="probe", quiet=True, **SMALL)
    config = yaml.safe_load((run_copy / "config.yaml").read_text())
    (run_copy / "config.yaml").write_text(yaml.safe_dump(config | {"data": "cifar10"}))
    opened: list[object] = []
    known = predict_module.images_of

    def images_of(encoder: RunEncoder, data: Path | None, **how: object) -> object:
        opened.append(data)
        return known(encoder, data, **how)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(predict_module, "images_of", images_of)
    assert dualtemp.predict(run_copy, photos / "test", **SMALL).measured["images"] == 10
    assert opened == [photos / "test"]


def test_a_runs_own_file_of_labels_is_known_in_every_spelling_of_its_folder(
    run_copy: Path, photos: Path, tmp_path: Path
) -> None:
    files = sorted((photos / "train").rglob("*.*g"))
    lines = [f"{path.relative_to(photos)},{'odd' if i % 2 else 'even'}" for i, path in enumerate(files)]
    (tmp_path / "mine.csv").write_text("file,label\n" + "\n".join(lines) + "\n")
    config = yaml.safe_load((run_copy / "config.yaml").read_text())
    (run_copy / "config.yaml").write_text(yaml.safe_dump(config | {"labels_from": str(tmp_path / "mine.csv")}))
    expected, found = (dualtemp.predict(run_copy, data, **SMALL) for data in (None, photos))
    assert set(expected.labels) == {"even", "odd", None}
    assert (found.labels, found.learned.tolist()) == (expected.labels, expected.learned.tolist())


def test_images_beside_class_folders_are_the_reason_that_is_told(timm_folder: Path, tmp_path: Path) -> None:
    for color, name in enumerate(("red", "green")):
        colored(tmp_path / "in" / name, 6, color)
    shutil.copy(tmp_path / "in" / "red" / "000.png", tmp_path / "in" / "overview.png")
    told: list[str] = []
    assert dualtemp.predict(timm_folder, tmp_path / "in", **SMALL, note=told.append).predictions is None
    assert any("no labels to learn from" in line and "overview.png" in line for line in told)
    with pytest.raises(UserError, match=r"overview\.png"):
        dualtemp.predict(timm_folder, tmp_path / "in" / "red", learn=tmp_path / "in", **SMALL)


def test_copies_of_one_image_are_one_cluster(
    timm_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the page is written
    colored(tmp_path / "in", 1, 0)
    for i in range(5):
        shutil.copy(tmp_path / "in" / "000.png", tmp_path / "in" / f"copy{i}.png")
    assert main(["predict", str(timm_folder), "--data", str(tmp_path / "in"), "--workers", "0", "--device", "cpu"]) == 0
    assert "1 cluster\n" in capsys.readouterr().out


def test_a_shard_that_is_not_there_is_named(run_copy: Path, photos: Path, tmp_path: Path) -> None:
    for name in ("000", "002"):
        with tarfile.open(tmp_path / f"{name}.tar", "w") as tar:
            for path in sorted((photos / "train" / "cat").iterdir())[:: 1 if name == "000" else -1][:6]:
                tar.add(path, f"{name}-{path.name}")
    shards = f"{tmp_path}/{{000..002}}.tar"
    assert dualtemp.predict(run_copy, shards, **SMALL).unreadable == {"001.tar": "the shard is not there"}
    made = dualtemp.embed(run_copy, data=shards, out=tmp_path / "x.npz", **SMALL)
    assert (made.images, made.unreadable) == (12, {"001.tar": "the shard is not there"})


def test_a_run_on_one_folder_in_a_folder_groups_other_images(run_copy: Path, photos: Path, tmp_path: Path) -> None:
    draw_photos(tmp_path / "own" / "2023", 12)
    draw_photos(tmp_path / "new", 6, first=900)
    config, environment = run_copy / "config.yaml", run_copy / "environment.json"
    config.write_text(config.read_text().replace(str(photos), str(tmp_path / "own")))
    environment.write_text(environment.read_text().replace('"cat",', "").replace('"dog"', '"2023"'))
    found = dualtemp.predict(run_copy, tmp_path / "new", **SMALL)
    assert found.predictions is None
    assert found.clusters is not None


def test_without_labels_there_are_clusters_and_a_note(timm_folder: Path, flat: Path) -> None:
    (flat / "labels.csv").unlink()
    said: list[str] = []
    found = dualtemp.predict(timm_folder, flat, **SMALL, note=said.append)
    assert found.predictions is None
    assert found.clusters is not None
    assert "--labels FILE.csv" in said[-1]


def test_killed_while_the_classifier_is_written_the_next_one_writes_it(
    run_copy: Path, tmp_path: Path, commands: Commands
) -> None:
    draw_photos(tmp_path / "new", 2, first=900)
    words = ("predict", run_copy, "--data", tmp_path / "new", "--json", "--device", "cpu", "--workers", "0")
    kill_where_it_halts(commands.start(*words, first=halting(".classifier.safetensors*")))
    assert not (run_copy / CLASSIFIER_FILE).exists()
    both = [commands.start(*words) for _ in range(2)]
    ended = [each.wait() for each in both]
    assert [each.code for each in ended] == [0, 0], ended
    assert json.loads(ended[0].out) == json.loads(ended[1].out)
    assert load_classifier(run_copy / CLASSIFIER_FILE).classes == ("cat", "dog")
    assert not list(run_copy.glob(".classifier*"))


def test_a_run_that_cannot_be_written_to_predicts_all_the_same(run_copy: Path, tmp_path: Path) -> None:
    draw_photos(tmp_path / "new", 2, first=900)
    (run_copy / CLASSIFIER_FILE).mkdir()  # what stands in the way, also for root
    said: list[str] = []
    found = dualtemp.predict(run_copy, tmp_path / "new", **SMALL, note=said.append)
    assert found.predictions is not None
    assert [text for text in said if "not kept" in text]


def test_a_file_holds_what_was_saved(tmp_path: Path) -> None:
    g = np.random.default_rng(0)
    x, y = g.normal(size=(40, 6)).astype(np.float32) + np.eye(6)[np.arange(40) % 3] * 3, np.arange(40) % 3
    x[:, 5] = 1  # a constant feature has an infinite scale
    made = fit_classifier(x, y, ["a", "ä\n", "c"], unknown_rate=0).with_facts(note="x")
    save_classifier(tmp_path / "c", made)
    read = load_classifier(tmp_path / "c")
    assert (read.classes, read.threshold, read.facts) == (made.classes, torch.inf, made.facts)
    assert torch.equal(read.predict(x).probabilities, made.predict(x).probabilities)


@pytest.mark.parametrize("content", [b"", b"not at all", b"\x08\0\0\0\0\0\0\0{}      "])
def test_what_is_no_classifier_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(UserError, match="no classifier that can be read") as raised:
        load_classifier(tmp_path / "c")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "x.txt"], "predictions go into .csv, .json, .html or .parquet"),
        (["--unknown-rate", "1"], "--unknown-rate must be from 0 to below 1"),
        (["--clusters", "0"], "--clusters must be at least 1"),
        (["--clusters", "61"], "61 clusters of 60 images"),
        (["--labels", "one.csv"], "one class, 'red' to learn from"),
        (["--labels", "nowhere.csv"], "nowhere.csv: cannot be read"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    words: list[str], message: str, flat: Path, timm_folder: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.csv").write_text("file,label\n000.png,red\n001.png,red\n")
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    given = ["--data", str(flat), "--workers", "0", "--device", "cpu", *words]
    assert main(["predict", str(timm_folder), *given]) == 2
    err = capsys.readouterr().err.strip().splitlines()
    assert message in err[-1]
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


def test_a_copied_run_takes_its_classifier_along(run_copy: Path, tmp_path: Path) -> None:
    draw_photos(tmp_path / "new", 2, first=900)
    first = dualtemp.predict(run_copy, tmp_path / "new", **SMALL)
    moved = shutil.move(run_copy, tmp_path / "moved")
    again = dualtemp.predict(moved, tmp_path / "new", **SMALL)
    assert first.predictions is not None
    assert again.predictions is not None
    assert torch.equal(first.predictions.probabilities, again.predictions.probabilities)


@pytest.mark.slow
def test_the_page_opens_in_a_browser_without_a_complaint_and_shows_every_picture(
    flat: Path, timm_folder: Path, tmp_path: Path, open_page
) -> None:
    out = tmp_path / "found.html"
    options = ["--unknown-rate", "0", "--clusters", "2", "--workers", "0", "--device", "cpu", "--out", str(out)]
    assert main(["predict", str(timm_folder), "--data", str(flat), *options]) == 0
    view, told = open_page(out)
    assert "1 suspected wrong label" in view.inner_text("body")
    sizes = view.evaluate("[...document.images].map(image => image.complete && image.naturalWidth)")
    assert len(sizes) > 12
    assert all(sizes)
    assert view.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "nothing to scroll sideways"
    assert told == []


@pytest.mark.slow
def test_the_runs_own_images_in_another_spelling_are_its_own(
    digits_run: Path, photos_run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits, own = tmp_path / "digits", tmp_path / "photos"
    shutil.copytree(digits_run, digits)
    shutil.copytree(photos_run, own)
    monkeypatch.setenv("HOME", str(photos.parent))
    for run, spelled in ((digits, "DIGITS"), (own, f"~/{photos.name}")):
        expected, found = (dualtemp.predict(run, data, device="cpu", workers=0) for data in (None, spelled))
        assert found.learned.tolist() == expected.learned.tolist()
        assert found.learned.any()
        assert found.measured == expected.measured  # of test images alone


@pytest.mark.parametrize("ending", [".csv", ".json", ".parquet", ".html"])
def test_class_folders_whose_names_are_no_text_are_predicted_and_written(
    timm_folder: Path, tmp_path: Path, ending: str
) -> None:
    odd = os.fsdecode(b"caf\xe9")
    for color, folder in enumerate((odd, "dog")):
        colored(tmp_path / "in" / folder, 6, color)
    found = dualtemp.predict(timm_folder, tmp_path / "in", device="cpu", workers=0)
    write_predictions(tmp_path / f"x{ending}", timm_folder, found)
    if ending == ".parquet":
        labels = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "x.parquet")["label"].to_pylist()
        assert set(labels) == {"caf\\xe9", "dog"}
    elif ending == ".csv":
        with open(tmp_path / "x.csv", encoding="utf-8", newline="") as file:
            assert {row["label"] for row in csv.DictReader(file)} == {"caf\\xe9", "dog"}
    elif ending == ".json":
        assert json.loads((tmp_path / "x.json").read_text())["classifier"]["classes"] == ["caf\\xe9", "dog"]

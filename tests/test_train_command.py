"""`dualtemp train`, `demo` and `doctor` as a user types them; mistakes create nothing."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file

import dualtemp
from dualtemp.cli import main
from dualtemp.config import Settings, setting_names
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.status import status_of

SMALL = ["--backbone", "resnet_mini", "--batch", "64", "--epochs", "1", "--subset", "128", "--knn-images", "128"]
QUICK = [*SMALL, "--no-page"]

FIGURES = ["epoch", "step", "loss", "entropy", "W_mean", "W_spread", "hardest_tenth", "lr"]
FIGURES += ["probe_top1", "probe_top5", "knn_top1", "spread", "uniformity", "effective_rank", "alignment", "collapsed"]
FIGURES += ["seconds", "images_per_second"]


@pytest.fixture(autouse=True)
def one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)


def test_a_run_leaves_all_that_the_folder_should_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--data", "digits", *SMALL, "--out", "runs/a"]) == 0
    said = capsys.readouterr()
    assert re.fullmatch(r"epoch 1/1 .*\nThe run's page is runs/a/report.html\n", said.out)
    assert said.err == ""
    run = Path("runs/a")
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["data"] == "digits"
    assert config["tau_beta"] == 1.0
    assert "dictionary_size" not in config
    environment = json.loads((run / "environment.json").read_text())
    assert len(environment["train"]["fingerprint"]) == 32
    assert environment["images"] == {
        "channels": 1,
        "size": 8,
        "mean": [0.3058],
        "std": [0.377],
        "classes": [str(digit) for digit in range(10)],
    }
    (line,) = (json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines())
    assert list(line) == FIGURES
    assert "<svg" in (run / "report.html").read_text()
    assert json.loads((run / "pictures.json").read_text())["step"] == 2
    assert status_of(RunFolder(run)) == ("done", "1 of 1 epochs")
    assert load_file(run / "backbone.safetensors")["conv1.weight"].shape[1] == 1
    assert len(list((run / "checkpoints").iterdir())) == 1


def test_python_and_the_command_line_say_the_same_words_and_make_the_same_bits() -> None:
    assert (
        main(["train", "--data", "digits", *QUICK, "--method", "moco", "--dictionary-size", "256", "--out", "a"]) == 0
    )
    metrics = dualtemp.train(
        data="digits",
        method="moco",
        dictionary_size=256,
        backbone="resnet_mini",
        batch=64,
        epochs=1,
        subset=128,
        knn_images=128,
        out="b",
        quiet=True,
        page=False,
    )
    first, second = (load_file(f"{run}/backbone.safetensors") for run in "ab")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert metrics["probe_top1"] == json.loads(Path("a/metrics.jsonl").read_text())["probe_top1"]


def test_the_config_of_a_run_reruns_it_and_flags_come_before_it() -> None:
    assert main(["train", "--data", "digits", *QUICK, "--seed", "3", "--out", "a"]) == 0
    assert main(["train", "--config", "a/config.yaml", "--out", "b"]) == 0
    assert main(["train", "--config", "a/config.yaml", "--tau-beta", "inf", "--out", "c"]) == 0
    a, b, c = (yaml.safe_load(Path(run, "config.yaml").read_text()) for run in "abc")
    assert a == b
    assert {name for name in a if a[name] != c[name]} == {"tau_beta"}
    first, second = (load_file(f"{run}/backbone.safetensors") for run in "ab")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_no_page_is_made_where_none_is_wanted() -> None:
    assert main(["train", "--data", "digits", *QUICK, "--out", "a"]) == 0
    assert not {"report.html", "pictures.json", "logs"} & {path.name for path in Path("a").iterdir()}


class Looker:
    """Looks at the page at every epoch."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def begin(self, path: Path, chosen: Settings) -> None:
        self.page = path / "report.html"

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        if step == 1:
            self.pages.append(self.page.read_text())

    def epoch(self, metrics: dict[str, Any]) -> None: ...

    def note(self, text: str) -> None:
        raise AssertionError(text)

    def close(self) -> None:
        self.pages.append(self.page.read_text())


def test_the_page_is_there_from_the_first_step_and_follows_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    looker = Looker()
    words: dict[str, Any] = {"data": "digits", "backbone": "resnet_mini", "batch": 64, "subset": 128}
    dualtemp.train(**words, epochs=2, evaluate_every=9, observer=looker, out="a")
    assert capsys.readouterr().out == "", "a watch takes the terminal's place"
    begun, first, last = looker.pages
    assert len({begun, first, last, Path("a/report.html").read_text()}) == 4
    assert all('http-equiv="refresh"' in page for page in (begun, first))
    assert 'http-equiv="refresh"' not in Path("a/report.html").read_text()


def test_a_run_that_fails_leaves_the_reason_and_a_page_that_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--data", "digits", *SMALL, "--lr", "1e38", "--out", "a"]) == 2
    said = capsys.readouterr().err.removeprefix("dualtemp: ")
    assert Path("a/trouble.txt").read_text() == said
    assert "not finite" in Path("a/report.html").read_text()
    assert not Path("a/pictures.json").exists()


def test_an_exception_of_any_kind_is_written_down_and_raised() -> None:
    class Broken(Looker):
        def epoch(self, metrics: dict[str, Any]) -> None:
            raise ZeroDivisionError("no\nway")

    with pytest.raises(ZeroDivisionError):
        dualtemp.train(data="digits", backbone="resnet_mini", batch=64, subset=128, observer=Broken(), out="a")
    assert Path("a/trouble.txt").read_text() == "ZeroDivisionError: no way\n"


def test_a_page_that_cannot_be_written_is_one_note_and_the_run_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--data", "digits", *QUICK, "--out", "a"]) == 0
    Path("a/report.html").mkdir()
    capsys.readouterr()
    assert main(["resume", "a", "--epochs", "3"]) == 0
    said = capsys.readouterr()
    assert said.out.count("epoch") == 2
    assert "report.html" not in said.out
    cosine, page = said.err.splitlines()
    assert "cosine now ends at epoch 3" in cosine
    assert re.fullmatch(r"dualtemp: the run's page is not available \(.*\); the run goes on without it", page)


def test_a_run_can_start_from_the_backbone_of_another() -> None:
    assert main(["train", "--data", "digits", *QUICK, "--out", "a"]) == 0
    assert main(["train", "--data", "digits", *QUICK, "--lr", "1e-20", "--init", "a", "--out", "b"]) == 0
    first, second = (load_file(f"{run}/backbone.safetensors") for run in "ab")
    torch.testing.assert_close(first["conv1.weight"], second["conv1.weight"])


def test_a_flat_folder_without_labels_trains() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (80, 20, 24, 3), dtype=np.uint8)
    Path("photos").mkdir()
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(f"photos/{number:03}.png")
    words = ["--backbone", "resnet_mini", "--batch", "32", "--epochs", "1", "--image-size", "16", "--no-page"]
    assert main(["train", "--data", "photos", *words, "--out", "a"]) == 0
    metrics = json.loads(Path("a/metrics.jsonl").read_text())
    assert "spread" in metrics
    assert "probe_top1" not in metrics


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "a"], "data is needed"),
        (["--data", "digits"], "--out"),
        (["--data", "digts", "--out", "a"], "did you mean 'digits'?"),
        (["--data", "digits", "--out", "a", "--metod", "simco"], "did you mean --method?"),
        (["--data", "digits", "--out", "a", "--method", "simcoo"], "did you mean 'simco'?"),
        (["--data", "digits", "--out", "a", "--dictionary-size", "9"], "does not apply to simco"),
        (["--data", "digits", "--out", "a", "--batch", "2000"], "batch 2000 is larger than the set of 1438 images"),
        (["--data", "digits", "--out", "a", "--recipe", "papper"], "did you mean 'paper'?"),
        (["--data", "digits", "--out", "a", "--backbone", "resnet_mni"], "resnet_mini"),
        (["--data", "digits", "--out", "a", "--init", "nowhere"], "nowhere"),
        (["--data", "digits", "--out", "a", "--device", "cuda:7"], "try --device cpu"),
        (["--data", "digits", "--out", "a", "--config", "none.yaml"], "none.yaml"),
        (["--data", "digits", "--out", "a", "--epochs"], "expected one argument"),
        (["--data", "digits", "--out", "a", "extra"], "'extra' is not expected here"),
        (["--data", "empty", "--out", "a"], "empty"),
        (["--data", "text", "--out", "a"], "text"),
        (["--data", "no/where", "--out", "a"], "no such folder"),
        (["--data", "digits", "--out", "full"], "full exists and is not a run"),
        (["--data", "digits", "--out", "a", "--batch", "65", "--chunk", "32"], "chunk 32 leaves one image of 65 over"),
        (["--data", "digits", "--out", "a", "--threads", "0"], "--threads must be at least 1"),
        (["--data", "text", "--method", "supervised", "--out", "a"], "text"),
    ],
)
def test_a_mistake_is_one_line_exit_code_2_and_nothing_created(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    Path("text").mkdir()
    Path("text/readme.jpg").write_text("no image")
    Path("full").mkdir()
    Path("full/something").touch()
    assert main(["train", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert err.startswith("dualtemp: ")
    assert not Path("a").exists()
    assert list(Path("full").iterdir()) == [Path("full/something")]


def test_a_run_goes_on_from_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    np.savez("set.npz", images=pixels)
    words = ["--backbone", "resnet_mini", "--batch", "16", "--epochs", "1", "--no-labels", "--no-page"]
    assert main(["train", "--data", "set.npz", *words, "--out", "a"]) == 0
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["resume", "../a", "--epochs", "2", "--no-page"]) == 0
    assert len((tmp_path / "a" / "metrics.jsonl").read_text().splitlines()) == 2


def test_an_existing_run_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--data", "digits", *QUICK, "--out", "a"]) == 0
    before = {path: path.read_bytes() for path in Path("a").rglob("*") if path.is_file()}
    assert main(["train", "--data", "digits", *QUICK, "--out", "a"]) == 2
    assert "dualtemp resume a" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in Path("a").rglob("*") if path.is_file()}
    assert main(["resume", "nowhere"]) == 2


def test_help_tells_every_setting_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    text = capsys.readouterr().out
    for name in setting_names():
        assert f"--{name.replace('_', '-')}" in text
    assert "65536 for moco" in text


def test_the_demo_ends_with_a_table_and_can_be_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["demo", "--data", "digits", "--epochs", "1", "--out", "d"]) == 0
        out = capsys.readouterr().out
        for name in ("raw pixels", "a color histogram", "the untrained encoder", "the trained encoder"):
            assert f"kNN of {name}" in out
        assert "linear probe" in out
        assert "dualtemp resume d --epochs 2" in out
        assert "Look at d/report.html" in out
    assert "data:image/jpeg" in Path("d/report.html").read_text(), "with pictures"


def test_a_demo_that_is_there_does_not_go_on_for_other_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--data", "digits", *QUICK, "--out", "d"]) == 0
    metrics = Path("d/metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert main(["demo", "--data", "cifar10", "--epochs", "2", "--out", "d"]) == 2
    told = capsys.readouterr().err
    assert told == "dualtemp: d is a run on digits, not on cifar10: give another --out, or leave --data out\n"
    assert Path("d/metrics.jsonl").read_bytes() == metrics


def test_the_doctor_finds_that_a_step_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "step on cpu   works" in out
    assert torch.__version__.split("+")[0] in out

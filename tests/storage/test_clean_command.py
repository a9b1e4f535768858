"""`dualtemp clean` shows everything, frees what it is told, and nothing that a run or a reader still needs."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_processes import PATIENCE
from made_runs import epochs, made_run

from dualtemp.cli import main
from dualtemp.runs.checkpoint import Checkpoint, save

LONG_AGO = time.time() - 40 * 86_400


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with one file of each kind, and two runs: one finished, one interrupted after three of four epochs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / "cache"))
    sizes = {
        "features/aa": 1000,
        "features/bb": 2000,
        "shards/cc.npz": 300,
        "shards/copies/dd.copy": 40_000,
        "shards/copies/dd.of": 10,
        "shards/copies/.ee.copy.4711.part": 500,
        "cifar10/train.npz": 700,
        "cifar10/test.npz": 100,
        ".svhn-abcd1234/set/train.npz": 60,
        "steps.json": 5,
    }
    for name, size in sizes.items():
        file = tmp_path / "cache" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size)
    for name, done in (("done", 4), ("stopped", 3)):
        run = made_run(tmp_path / "runs" / name, epochs(loss=[4.0, 3.0, 2.0, 1.0][:done]))
        (run / "backbone.safetensors").write_bytes(b"w" * 77)
        for epoch in (done - 1, done):
            save(run / "checkpoints", Checkpoint(done=10 * epoch))
    return tmp_path


def age(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (LONG_AGO, LONG_AGO))


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.name != ".lock"}


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["clean", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@contextmanager
def holding(lock: Path) -> Iterator[None]:
    """Another process holds a lock."""
    program = (
        "import sys; from pathlib import Path; from dualtemp.file_lock import locked\n"
        f"with locked(Path({str(lock)!r})):\n print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
    finally:
        process.communicate(timeout=PATIENCE)


def test_it_shows_everything_by_kind_with_its_size_and_changes_nothing(place: Path, capsys: Any) -> None:
    before = files(place)
    stored = said([], capsys)["stored"]
    sums: dict[str, int] = {}
    for item in stored:
        sums[item["kind"]] = sums.get(item["kind"], 0) + item["bytes"]
    weights = sum(path.stat().st_size for path in place.glob("runs/*/checkpoints/*"))
    assert sums == {
        "features": 3000,
        "indexes of shards": 300,
        "copies of shards": 40_010,
        "temporary files": 560,
        "data sets": 800,
        "checkpoints": weights,
    }
    assert main(["clean"]) == 0
    table = capsys.readouterr().out
    assert "40.0 kB" in table
    assert "--caches" in table
    assert files(place) == before


@pytest.mark.parametrize("words", [["--caches"], ["--temporary"], ["--checkpoints", "runs/done", "runs/stopped"]])
def test_nothing_goes_without_yes(words: list[str], place: Path, capsys: Any) -> None:
    before = files(place)
    assert main(["clean", *words]) == 0
    assert ("add --yes" in capsys.readouterr().out) == (words != ["--temporary"])  # written just now
    assert files(place) == before


def test_caches_go_and_images_and_answers_stay(place: Path, capsys: Any) -> None:
    gone = {f"cache/{name}" for name in ("features/aa", "features/bb", "shards/cc.npz")}
    gone |= {"cache/shards/copies/dd.copy", "cache/shards/copies/dd.of"}
    before = files(place)
    assert said(["--caches", "--yes"], capsys)["bytes"] == 43_310
    assert before - files(place) == gone
    assert files(place) <= before


def test_only_what_was_not_used_for_so_long_goes(place: Path, capsys: Any) -> None:
    age(place / "cache/features/aa")
    before = files(place)
    said(["--caches", "--older-than", "30", "--yes"], capsys)
    assert before - files(place) == {"cache/features/aa"}
    said(["--caches", "--older-than", "0", "--yes"], capsys)
    assert not (place / "cache/features/bb").exists()


def test_a_copy_of_a_shard_and_its_note_stay_or_go_together(place: Path, capsys: Any) -> None:
    copy, note = (place / f"cache/shards/copies/dd.{ending}" for ending in ("copy", "of"))
    orphan = note.with_name("ff.of")  # what earlier versions left of a copy
    orphan.write_text("http://x/y.tar")
    age(note, orphan)
    words = ["--caches", "--older-than", "30"]
    assert [Path(item["path"]).name for item in said(words, capsys)["would_free"]] == ["ff.of"]
    assert said([*words, "--yes"], capsys)["bytes"] == 14
    assert copy.exists()
    assert note.exists()
    age(copy)
    assert said([*words, "--yes"], capsys)["bytes"] == 40_010
    assert not copy.exists()
    assert not note.exists()


def test_what_another_process_uses_stays_and_is_told(place: Path, capsys: Any) -> None:
    with holding(place / "cache/features/.aa.lock"):
        told = said(["--caches", "--yes"], capsys)
    assert [(Path(item["path"]).name, item["kept"]) for item in told["kept"]] == [("aa", "a process is using it")]
    assert (place / "cache/features/aa").exists()
    assert not (place / "cache/features/bb").exists()
    assert said(["--caches", "--yes"], capsys)["bytes"] == 1000


def test_temporary_files_go_once_nobody_has_touched_them_for_a_day(place: Path, capsys: Any) -> None:
    part, folder = place / "cache/shards/copies/.ee.copy.4711.part", place / "cache/.svhn-abcd1234"
    of_run = place / "runs/stopped/checkpoints/.step.9-ab.part"
    of_run.write_bytes(b"half")
    assert said(["--temporary", "--yes"], capsys)["bytes"] == 0
    age(part, of_run, folder, *folder.rglob("*"))
    with holding(place / "cache/.svhn.lock"), holding(place / "runs/stopped/.lock"):
        assert said(["--temporary", "--yes"], capsys)["bytes"] == 500
    before = files(place)
    assert said(["--temporary", "--yes"], capsys)["bytes"] == 64
    assert before - files(place) == {
        "runs/stopped/checkpoints/.step.9-ab.part",
        "cache/.svhn-abcd1234/set/train.npz",
    }
    assert not folder.exists()


def test_all_checkpoints_of_a_finished_run_go_and_its_weights_stay(place: Path, capsys: Any) -> None:
    before = files(place)
    said(["--checkpoints", "runs/done", "--yes"], capsys)
    steps = {f"runs/done/checkpoints/step-{step:010d}.ckpt" for step in (30, 40)}
    assert before - files(place) == steps
    assert main(["resume", "runs/done"]) == 2  # no checkpoint: it must not begin anew
    assert before - files(place) == steps


def test_the_newest_checkpoint_of_an_unfinished_run_stays(place: Path, capsys: Any) -> None:
    before = files(place)
    told = said(["--checkpoints", "runs/stopped", "--yes"], capsys)
    assert before - files(place) == {"runs/stopped/checkpoints/step-0000000020.ckpt"}
    assert "not finished" in told["kept"][0]["kept"]


def test_an_older_checkpoint_stays_if_the_newest_is_damaged(place: Path, capsys: Any) -> None:
    newest = place / "runs/stopped/checkpoints/step-0000000030.ckpt"
    newest.write_bytes(newest.read_bytes()[:-1])
    before = files(place)
    told = said(["--checkpoints", "runs/stopped", "--yes"], capsys)
    assert files(place) == before
    assert "step-0000000030.ckpt is damaged" in told["kept"][0]["kept"]


def test_an_older_checkpoint_stays_if_the_newest_cannot_be_read(
    place: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest, read_bytes = place / "runs/stopped/checkpoints/step-0000000030.ckpt", Path.read_bytes

    def failing(path: Path) -> bytes:
        if path.name == newest.name:
            raise OSError(5, "Input/output error")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", failing)
    before = files(place)
    told = said(["--checkpoints", "runs/stopped", "--yes"], capsys)
    assert files(place) == before
    assert "step-0000000030.ckpt cannot be read (Input/output error)" in told["kept"][0]["kept"]


def test_a_run_that_was_killed_before_its_last_checkpoint_is_not_finished(place: Path, capsys: Any) -> None:
    (place / "runs/done/checkpoints/step-0000000040.ckpt").unlink()
    before = files(place)
    said(["--checkpoints", "runs/done", "--yes"], capsys)
    assert files(place) == before


def test_a_run_of_one_epoch_keeps_its_checkpoint(place: Path, capsys: Any) -> None:
    run = made_run(place / "runs" / "short", epochs(loss=[4.0]), epochs=1)
    (run / "backbone.safetensors").write_bytes(b"w")
    save(run / "checkpoints", Checkpoint(done=10))
    before = files(place)
    said(["--checkpoints", "runs/short", "--yes"], capsys)
    assert files(place) == before


def test_checkpoints_of_a_run_that_goes_on_stay(place: Path, capsys: Any) -> None:
    before = files(place)
    with holding(place / "runs/stopped/.lock"):
        told = said(["--checkpoints", "runs/stopped", "runs/done", "--yes"], capsys)
    assert {Path(item["path"]).parts[-3] for item in told["freed"]} == {"done"}
    assert {item["kept"] for item in told["kept"]} == {"a process is writing this run"}
    assert before - files(place) == {f"runs/done/checkpoints/step-{s:010d}.ckpt" for s in (30, 40)}


def test_a_process_that_takes_the_lock_after_the_list_was_made_loses_nothing(place: Path) -> None:
    from dualtemp.storage.found import in_cache, in_run
    from dualtemp.storage.freeing import free

    listed = [*in_cache(), *in_run(place / "runs/stopped")]
    before = files(place)
    with holding(place / "runs/stopped/.lock"), holding(place / "cache/features/.bb.lock"):
        freed = free([item for item in listed if item.kind in ("features", "checkpoints")])
    assert [item.path.name for item in freed.items] == ["aa"]
    assert before - files(place) == {"cache/features/aa"}


def test_it_loads_no_torch(place: Path) -> None:
    program = (
        "import sys; from dualtemp.cli import main; assert main(['clean']) == 0; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE, capture_output=True)


@pytest.mark.slow
def test_a_stopped_run_whose_checkpoints_were_freed_ends_with_the_same_bits(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    train = "train --data digits --backbone resnet_mini --batch 32 --subset 96 --knn-images 96 --threads 1 --device cpu"
    words = [*train.split(), "--no-page", "--quiet", "--method", "simco"]
    assert main([*words, "--epochs", "3", "--out", "whole"]) == 0
    program = (
        "import os, signal, dualtemp.training.trainer as t\n"
        "before = t.Trainer.finish_epoch\n"
        "def finish(self, epoch):\n"
        "    out = before(self, epoch)\n"
        "    if epoch == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return out\n"
        "t.Trainer.finish_epoch = finish\n"
        f"from dualtemp.cli import main; main({[*words, '--epochs', '3', '--out', 'killed']!r})"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=PATIENCE).returncode == -9
    assert len(list(Path("killed/checkpoints").iterdir())) == 2
    assert main(["clean", "--checkpoints", "killed", "--yes"]) == 0
    assert len(list(Path("killed/checkpoints").glob("step-*"))) == 1
    assert main(["resume", "killed", "--threads", "1", "--device", "cpu", "--no-page", "--quiet"]) == 0
    assert Path("killed/backbone.safetensors").read_bytes() == Path("whole/backbone.safetensors").read_bytes()

"""Going on with a run: further, not less far, from damaged checkpoints, after a polite stop, on a full disk."""

import io
import json
import os
import pickle
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
import torch
from command_processes import OFTEN, PATIENCE, Commands, halting, kill_where_it_halts, signal_where_it_halts, until
from run_contents import different, everything

from dualtemp.api import resume
from dualtemp.config import settings
from dualtemp.errors import UserError
from dualtemp.runs import checkpoint
from dualtemp.runs.folder import RunFolder
from dualtemp.training.epoch_statistics import NAMES
from dualtemp.training.start import is_restart

DIGITS = ("--data", "digits", "--backbone", "resnet_mini", "--batch", "64", "--subset", "256", "--evaluate-every", "9")
RUN = (*DIGITS, "--epochs", "3")
QUIET: dict[str, Any] = {"device": "cpu", "threads": 1, "quiet": True, "page": False}
FIRST_CHECKPOINT = halting(".step-*.part", cut=False)


@pytest.fixture
def run(run_once: Any, tmp_path: Path) -> Path:
    """A finished run of three epochs of four steps, to do with as one likes."""
    return Path(shutil.copytree(run_once(*RUN), tmp_path / "run"))


def newest_first(run: Path) -> list[Path]:
    return checkpoint.checkpoints(run / "checkpoints")[::-1]


def test_a_finished_run_says_so_and_is_left_as_it_is(run: Path, commands: Commands) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    ended = commands.run("resume", run)
    assert ended.code == 0
    assert re.fullmatch(r"dualtemp: \S+ is finished: 3 epochs.*\n", ended.err)
    assert ended.out == ""
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == before


def test_a_finished_run_can_be_extended_and_its_first_epochs_stay(run: Path, commands: Commands) -> None:
    before = RunFolder(run).history()
    ended = commands.run("resume", run, "--epochs", 5)
    assert ended.code == 0, ended.err
    after = RunFolder(run).history()
    assert after[:3] == before
    said = re.search(
        r"cosine now ends at epoch 5 instead of 3: its last step had (\S+), the next has (\S+)\n", ended.err
    )
    assert said, "the learning rate rises again, and that is said"
    assert float(said[1]) == pytest.approx(before[-1]["lr"], rel=1e-2, abs=1e-12)
    assert float(said[2]) > 10 * float(said[1])
    assert [line["epoch"] for line in after] == [1, 2, 3, 4, 5]
    assert after[-1]["step"] == 20
    assert RunFolder(run).settings().epochs == 5
    assert commands.run("resume", run).err.count("is finished: 5 epochs") == 1


def test_fewer_epochs_than_reached_are_refused(run: Path, commands: Commands) -> None:
    config = (run / "config.yaml").read_text()
    for epochs in (2, 0):
        ended = commands.run("resume", run, "--epochs", epochs)
        assert ended.code == 2
        assert ended.err.count("\n") == 1
        assert ("--epochs 4 or more" if epochs else "at least 1") in ended.err
    assert (run / "config.yaml").read_text() == config


def test_an_epoch_that_has_only_begun_counts_as_reached(run: Path, commands: Commands) -> None:
    newest = newest_first(run)[0]
    state = checkpoint.load(newest)
    state.done = 9
    checkpoint.save(newest.parent, state)
    newest.unlink()
    assert "reached epoch 3 already: give --epochs 3" in commands.run("resume", run, "--epochs", 2).err


def test_other_data_than_the_run_began_with_are_refused(run: Path, commands: Commands) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("subset: 256", "subset: 300"))
    ended = commands.run("resume", run, "--epochs", 4)
    assert ended.code == 2
    assert "had 256 images, now there are 300" in ended.err


def test_a_config_that_was_edited_is_told_and_taken(run: Path, commands: Commands) -> None:
    config = run / "config.yaml"
    config.write_text(
        config.read_text().replace("lr: 0.03\n", "lr: 0.07\n").replace("probe_lr: 0.3\n", "probe_lr: 0.5\n")
    )
    ended = commands.run("resume", run, "--epochs", 4)
    assert ended.code == 0, ended.err
    changed, cosine = ended.err.splitlines()
    assert re.fullmatch(
        r"dualtemp: \S+config\.yaml was changed .*\(lr 0\.03 -> 0\.07, probe_lr 0\.3 -> 0\.5\); .*", changed
    )
    assert "its last step had 0.000152" in cosine  # with the learning rate of before
    later = commands.run("resume", run, "--epochs", 5).err
    assert "was changed" not in later, "it is told once: the new checkpoint knows it"


def edit(run: Path, before: str, after: str) -> None:
    config = run / "config.yaml"
    assert config.read_text().count(f"\n{before}\n") == 1
    config.write_text(config.read_text().replace(f"\n{before}\n", f"\n{after}\n"))


@pytest.mark.parametrize(("name", "before", "after"), [("weight_decay", 0.0005, 0.2), ("momentum", 0.9, 0.3)])
def test_settings_of_the_optimizer_that_were_edited_are_taken(
    run: Path, tmp_path: Path, name: str, before: float, after: float
) -> None:
    unchanged, by_hand = (Path(shutil.copytree(run, tmp_path / other)) for other in ("unchanged", "by hand"))
    state = checkpoint.load(newest_first(by_hand)[0])
    assert [group[name] for group in state.optimizer["param_groups"]] == [before]
    state.optimizer["param_groups"][0][name] = after
    checkpoint.save(by_hand / "checkpoints", state)
    for edited in (run, by_hand):
        edit(edited, f"{name}: {before}", f"{name}: {after}")
    for each in (run, by_hand, unchanged):
        resume(each, epochs=4, **QUIET)
    backbones = [(each / "backbone.safetensors").read_bytes() for each in (run, by_hand, unchanged)]
    assert backbones[0] == backbones[1] != backbones[2]


@pytest.mark.parametrize(
    ("before", "after", "anew"),
    [
        ("optimizer: sgd", "optimizer: lars", True),
        ("optimizer: sgd", "optimizer: adamw", True),
        ("layer_decay: 1.0", "layer_decay: 0.5", True),
        ("amp: none", "amp: fp16", False),
    ],
)
def test_another_optimizer_or_precision_in_an_edited_config_starts_anew_and_the_run_goes_on(
    run: Path, before: str, after: str, anew: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(run, before, after)
    assert resume(run, epochs=4, **QUIET)["step"] == 16
    assert ("the optimizer starts anew" in capsys.readouterr().err) is anew
    assert resume(run, epochs=5, **QUIET)["step"] == 20
    assert "anew" not in capsys.readouterr().err, "the new checkpoint has it"


def test_another_batch_would_count_epochs_twice_and_is_refused(run: Path) -> None:
    edit(run, "batch: 64", "batch: 32")
    with pytest.raises(UserError, match=r"batch 32, but .* counts its steps by batches of 64: put it back, or"):
        resume(run, epochs=4, **QUIET)
    edit(run, "batch: 32", "batch: 64")
    resume(run, epochs=4, **QUIET)
    assert [line["epoch"] for line in RunFolder(run).history()] == [1, 2, 3, 4]


def test_other_first_weights_than_the_run_began_with_are_refused(run: Path) -> None:
    edit(run, "whiten_stem: false", "whiten_stem: true")
    with pytest.raises(UserError, match=r"whiten_stem True, but .* began with False: put it back, or train anew"):
        resume(run, epochs=4, **QUIET)


def test_a_finished_run_whose_metrics_were_taken_away_has_none_and_can_be_extended(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    assert resume(run, **QUIET) == {}
    assert resume(run, epochs=4, **QUIET)["epoch"] == 4


def test_a_restarted_job_knows_its_own_run_from_that_of_another_framework_or_version(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    given = {"data": "digits", "backbone": "resnet_mini", "batch": 64, "subset": 256, "evaluate_every": 9, "epochs": 3}
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**environment, "slurm_job": "7"}))
    assert is_restart(RunFolder(run), settings(given))
    assert not is_restart(RunFolder(run), settings({**given, "method": "byol", "key_momentum": 0.9}))
    edit(run, "match_step: false\ncomputation: 1", "computation: 1")  # as before there was such a setting
    assert is_restart(RunFolder(run), settings({**given, "match_step": False}))
    assert not is_restart(RunFolder(run), settings({**given, "match_step": True}))


@pytest.mark.parametrize("figures", [("loss", "entropy"), NAMES])
def test_a_checkpoint_of_an_older_version_goes_on_to_the_same_weights(
    figures: tuple[str, ...], run: Path, commands: Commands, run_once: Any
) -> None:
    newest, before = newest_first(run)
    newest.unlink()
    state = checkpoint.load(before)
    assert isinstance(state.totals, Mapping)
    state.totals = torch.tensor([state.totals[name] for name in (*figures, "steps")], dtype=torch.float64)
    write_payload(before, {name: value for name, value in state.to_payload().items() if name != "settings"})
    ended = commands.run("resume", run)
    assert (ended.code, ended.err) == (0, "")
    assert different(everything(run), everything(run_once(*RUN))) == []


@pytest.mark.slow
def test_a_run_goes_on_with_the_threads_that_it_began_with(commands: Commands, run_once: Any, tmp_path: Path) -> None:
    words, path = (*DIGITS, "--epochs", "1"), tmp_path / "run"
    one, two = (everything(run_once(*words, "--threads", threads)) for threads in ("1", "2"))
    assert different(one, two), "sums of two threads have other bits, or this test tells nothing"
    second = halting(".step-*.part", 2)
    kill_where_it_halts(commands.start("train", *words, "--threads", "2", *OFTEN, "--out", path, first=second))
    ended = commands.run("resume", path)
    assert ended.code == 0, ended.err
    assert different(everything(path), two) == []


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 4
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


class Code:
    """Runs when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def write_under_a_right_header(path: Path, payload: bytes) -> None:
    digest = blake2b(payload, digest_size=32).digest()
    path.write_bytes(b"dualtemp checkpoint 1\n" + digest + struct.pack("<Q", len(payload)) + payload)


def write_payload(path: Path, state: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_under_a_right_header(path, buffer.getvalue())


def code(path: Path) -> None:
    path.write_bytes(pickle.dumps(Code(path.with_suffix(".ran"))))


def code_under_a_right_header(path: Path) -> None:
    write_under_a_right_header(path, pickle.dumps(Code(path.with_suffix(".ran"))))


DAMAGES = [truncate, flip_a_bit, empty, code, code_under_a_right_header]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(
    damage: Any, run: Path, commands: Commands, run_once: Any
) -> None:
    newest = newest_first(run)[0]
    damage(newest)
    ended = commands.run("resume", run)
    assert ended.code == 0, ended.err
    assert re.fullmatch(rf"dualtemp: {newest.name} .*; going on from the checkpoint before it\n", ended.err)
    assert different(everything(run), everything(run_once(*RUN))) == []
    assert not newest.with_suffix(".ran").exists()


def test_a_damaged_checkpoint_does_not_pass_for_the_newest_again(run: Path) -> None:
    newest, before = newest_first(run)
    flip_a_bit(newest)
    _, damaged = checkpoint.read_latest(run / "checkpoints")
    assert damaged == [f"{newest.name} is damaged"]
    assert newest_first(run) == [before]
    assert checkpoint.read_latest(run / "checkpoints")[1] == []


def test_if_all_checkpoints_are_damaged_that_is_one_line(run: Path, commands: Commands) -> None:
    for damage, path in zip((code_under_a_right_header, truncate), newest_first(run), strict=True):
        damage(path)
    metrics = (run / "metrics.jsonl").read_text()
    ended = commands.run("resume", run)
    assert ended.code == 2
    assert re.fullmatch(r"dualtemp: no checkpoint in \S+ can be read: .*12.*; .*8.*; train anew.*\n", ended.err)
    assert (run / "metrics.jsonl").read_text() == metrics
    assert not list(run.rglob("*.ran"))


def test_a_run_whose_checkpoints_were_taken_away_is_not_begun_anew(run: Path, commands: Commands) -> None:
    for path in newest_first(run):
        path.unlink()
    metrics = (run / "metrics.jsonl").read_text()
    ended = commands.run("resume", run)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "no checkpoint" in ended.err
    assert (run / "metrics.jsonl").read_text() == metrics


def test_a_run_of_one_epoch_whose_checkpoints_were_taken_away_is_not_begun_anew(run: Path) -> None:
    metrics = (run / "metrics.jsonl").read_text().splitlines(keepends=True)[0]
    (run / "metrics.jsonl").write_text(metrics)
    shutil.rmtree(run / "checkpoints")
    weights = (run / "backbone.safetensors").read_bytes()
    with pytest.raises(UserError, match="has no checkpoint to go on from"):
        resume(run, epochs=4, **QUIET)
    assert (run / "metrics.jsonl").read_text() == metrics
    assert (run / "backbone.safetensors").read_bytes() == weights


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_run_that_is_asked_to_stop_saves_and_says_how_to_go_on(
    number: int, commands: Commands, run_once: Any, tmp_path: Path
) -> None:
    words, path = (*DIGITS, "--epochs", "12"), tmp_path / "run"
    command = commands.start("train", *words, "--out", path, first=FIRST_CHECKPOINT)
    signal_where_it_halts(command, number)
    ended = command.wait()
    assert ended.code == 130, ended.err
    asked, told = ended.err.splitlines()
    assert asked == "dualtemp: stopping after this step; once more to stop at once"
    saved = newest_first(path)[0].name
    assert told == f"dualtemp: stopped; saved as {saved}; go on with `dualtemp resume {path}`"
    ended = commands.run("resume", path)
    assert ended.code == 0, ended.err
    assert different(everything(path), everything(run_once(*words))) == []


def test_the_second_interrupt_stops_at_once(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "run"
    # Of the two files that an epoch writes, each meets an interrupt.
    files = halting(".*.part", 1, 2, after=path / "metrics.jsonl", cut=False)
    command = commands.start("train", *RUN, "--out", path, first=files)
    signal_where_it_halts(command, signal.SIGINT)
    assert until(command, lambda: "stopping after this step" in command.err.read_text())
    signal_where_it_halts(command, signal.SIGINT)
    ended = command.wait()
    assert ended.code == 130
    assert ended.err.splitlines()[-1] == "dualtemp: stopped at once; the last checkpoint stands"
    assert not list(path.rglob("*.part"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 16 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("there is no mount here")
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        pytest.skip(f"mounting a tmpfs is not allowed here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], timeout=PATIENCE, check=True)


def fill(place: Path, leave: int) -> Path:
    ballast = place / "ballast"
    free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
    ballast.write_bytes(bytes(max(0, free - leave)))
    return ballast


@pytest.mark.parametrize("leave", [0, 100_000, 1_300_000, 2_000_000])
@pytest.mark.slow
def test_a_full_disk_is_one_line_and_leaves_the_older_checkpoint(
    leave: int, small_disk: Path, commands: Commands, run_once: Any
) -> None:
    words, path = (*DIGITS, "--epochs", "12"), small_disk / "run"
    command = commands.start("train", *words, "--out", path, first=FIRST_CHECKPOINT)
    signal_where_it_halts(command, signal.SIGINT)
    assert command.wait().code == 130
    ballast = fill(small_disk, leave)
    ended = commands.run("resume", path)
    assert ended.code == 2, ended.err
    assert re.fullmatch(
        r"dualtemp: \S+ cannot be written \(No space left on device\): make room, then `dualtemp resume \S+`; "
        r"the last good checkpoint is step-\d+\.ckpt\n",
        ended.err,
    )
    assert not list(path.rglob("*.part"))
    for kept in newest_first(path):
        checkpoint.load(kept)
    ballast.unlink()
    ended = commands.run("resume", path)
    assert ended.code == 0, ended.err
    assert different(everything(path), everything(run_once(*words))) == []


def test_a_run_that_finds_the_disk_full_at_its_beginning_leaves_nothing(small_disk: Path, commands: Commands) -> None:
    fill(small_disk, 0)
    ended = commands.run("train", *RUN, "--out", small_disk / "some" / "run")
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert "No space left on device" in ended.err
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]

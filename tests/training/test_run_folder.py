"""A run folder that several processes want to make, or that cannot be made."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from command_processes import PATIENCE

from dualtemp.config import complete, settings
from dualtemp.errors import UserError
from dualtemp.runs.folder import RunFolder

CHOSEN = complete(settings({"data": "digits", "epochs": 3}), 8)


class Slow(dict[str, Any]):
    """An environment that takes its time while it is written, between the folder's lock and its config."""

    def __init__(self) -> None:
        super().__init__(machine="slow")
        self.begun, self.let_go = threading.Event(), threading.Event()

    def items(self) -> Any:
        self.begun.set()
        assert self.let_go.wait(PATIENCE)
        return super().items()


def test_whoever_waits_in_vain_for_a_slow_beginning_leaves_its_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, slow, made, real = tmp_path / "runs" / "new", Slow(), [], Path.mkdir

    def late(self: Path, *words: Any, **named: Any) -> None:
        # This thread has seen that there is no folder; before it makes one, the other thread does.
        if threading.current_thread() is threading.main_thread():
            assert slow.begun.wait(PATIENCE)
        real(self, *words, **named)

    def begin() -> None:
        with RunFolder(path).create(CHOSEN, slow):
            made.append(sorted(os.listdir(path)))

    monkeypatch.setattr(Path, "mkdir", late)
    first = threading.Thread(target=begin)
    starter = threading.Timer(0.2, first.start)
    starter.start()
    with pytest.raises(UserError, match="another process"), RunFolder(path).create(CHOSEN, {}):
        pass
    assert sorted(os.listdir(path)) == [".lock", "checkpoints"]
    slow.let_go.set()
    first.join()
    assert made == [[".lock", "checkpoints", "config.yaml", "environment.json"]]


def test_whoever_waits_for_a_beginning_that_fails_makes_the_folder_itself(tmp_path: Path) -> None:
    class Full(Slow):
        def items(self) -> Any:
            super().items()
            raise OSError(28, "No space left on device")

    path, full, failed = tmp_path / "runs" / "new", Full(), []

    def fail() -> None:
        with pytest.raises(UserError, match="No space left") as caught, RunFolder(path).create(CHOSEN, full):
            pass
        failed.append(str(caught.value))

    first = threading.Thread(target=fail)
    first.start()
    assert full.begun.wait(PATIENCE)
    threading.Timer(0.3, full.let_go.set).start()
    with RunFolder(path).create(CHOSEN, {}):
        assert sorted(os.listdir(path)) == [".lock", "checkpoints", "config.yaml", "environment.json"]
    first.join()
    assert len(failed) == 1


def test_a_folder_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    for name in ("n" * 300, "deep/" + "n" * 300):
        with pytest.raises(UserError, match="File name too long"), RunFolder(tmp_path / name).create(CHOSEN, {}):
            pass
        with pytest.raises(UserError, match="File name too long"):
            RunFolder.refuse_existing(tmp_path / name)
        with pytest.raises(UserError, match="is not a run"):
            RunFolder.open(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_what_killed_starts_left_half_written_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / ".environment.json.7.part").touch()
    with RunFolder(tmp_path).create(CHOSEN, {}):
        assert sorted(os.listdir(tmp_path)) == [".lock", "checkpoints", "config.yaml", "environment.json"]

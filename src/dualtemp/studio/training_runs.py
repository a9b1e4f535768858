"""Runs started from the page: separate processes, which continue when the page and the studio are closed.

Beside the runs, the folder `.studio` keeps each run's log and process number, and its images if they were chosen on the
page. Names of new runs are made here; a page can only name existing runs.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dualtemp.atomic_write import whole_file
from dualtemp.errors import UserError, writing
from dualtemp.file_lock import held
from dualtemp.report.runs_list import describe_run, find_runs
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.metrics import measures
from dualtemp.runs.record import points, read_run
from dualtemp.studio.events import News

EVERY = 1.0  # least seconds between two looks at the runs
REST = 20  # the pause after a look is at least this many times as long as the look
MOST_LINES = 40  # of a log, shown on the page


class TrainingRuns:
    """The runs below a folder, and how to start, stop and resume them.

    Args:
        folder: where runs are; it is created when the first one starts.
        news: is told of every change.
        device: for runs started here, default "auto".
    """

    def __init__(self, folder: Path, news: News, device: str = "auto") -> None:
        self.folder, self.news, self.device = folder, news, device
        self.own = folder / ".studio"
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._names: set[str] = set()  # of runs started here
        self._lock, self._telling = threading.Lock(), threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="studio-runs", daemon=True)

    def start_watching(self) -> None:
        """Start telling pages of changes."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching; the runs continue."""
        self._closing.set()

    def paths(self) -> dict[str, Path]:
        """All runs by name."""
        if not self.folder.is_dir():
            return {}
        return {str(path.relative_to(self.folder)): path for path in find_runs(self.folder, report=False)}

    def listed(self) -> list[dict[str, Any]]:
        """All runs for the page, including those that are starting or failed to start."""
        rows = [_plain(describe_run(path, name)) for name, path in self.paths().items()]
        for row in rows:
            if self._living(row["name"]):  # its process is alive, whatever its folder says
                row["status"] = "running"
        there = {row["name"] for row in rows}
        for name, child in list(self._children.items()):
            if name not in there:
                code = child.poll()
                status = "starting" if code is None else "failed"
                rows.append({"name": name, "status": status, "reason": self.last_line(name)})
        for row in rows:
            row.pop("path", None)
        return rows

    def history(self, name: str) -> dict[str, Any]:
        """The curves of a run: for each measure its title and points (epoch, value)."""
        run = read_run(self._path(name))
        curves = []
        for key, each in measures().items():
            if found := points([line for line in run.history if not isinstance(line.get(key), bool)], key):
                curves.append({"key": key, "title": each.title, "about": each.says, "points": found})
        return {"name": name, "epochs": run.chosen.epochs, "status": run.status.word, "curves": curves}

    def log(self, name: str) -> str:
        """The last lines that a run's process has printed."""
        if name not in self.paths() and name not in self._children:
            raise UserError(f"no run is called {name!r}")
        return self._log_tail(name)

    def last_line(self, name: str) -> str:
        """The last line that a run's process has printed."""
        lines = self._log_tail(name).splitlines()
        return lines[-1] if lines else ""

    def new_name(self, stem: str) -> str:
        """A name that no run has, and that was not given out before."""
        stem = re.sub(r"[^\w.-]+", "-", stem).strip("-.")[:60] or "run"
        with self._lock:
            taken = {*self.paths(), *self._names, *(path.stem for path in self.own.glob("*.json"))}
            number = 1
            while f"{stem}-{number}" in taken or (self.folder / f"{stem}-{number}").exists():
                number += 1
            self._names.add(f"{stem}-{number}")
        return f"{stem}-{number}"

    def train(self, name: str, data: str, settings: Mapping[str, Any]) -> None:
        """Start `dualtemp train`; name: from `new_name`."""
        flags: list[str] = []
        for key, value in settings.items():
            if value is not None:
                flags += [f"--{key.replace('_', '-')}", str(value)]
        self._start(name, ["train", "--data", data, "--out", str(self.folder / name), *flags])

    def resume(self, name: str, epochs: int | None = None) -> None:
        """Start `dualtemp resume`, to more epochs if given."""
        path = self._path(name)
        if describe_run(path, name)["status"] == "running":
            raise UserError(f"{name} is running already")
        self._start(name, ["resume", str(path), *(["--epochs", str(epochs)] if epochs else [])])

    def stop(self, name: str) -> None:
        """Ask a run that was started here to stop after its present step; it can be resumed."""
        if child := self._living(name):
            child.terminate()
            return
        path = self.folder / name if name in self._children else self._path(name)
        pid = self._pid(name, path)
        if pid is None:
            raise UserError(f"{name} is not running, or was not started from the studio")
        os.kill(pid, signal.SIGTERM)

    def path(self, name: str) -> Path:
        """The folder of a run."""
        return self._path(name)

    def images_path(self, name: str, ending: str = "") -> Path:
        """Where the images chosen for a run are stored."""
        return (self.own / "images" / f"{name}{ending}").resolve()

    def _path(self, name: str) -> Path:
        found = self.paths().get(name)
        if found is None:
            raise UserError(f"no run is called {name!r}")
        return found

    def _start(self, name: str, words: Sequence[str]) -> None:
        words = [*words, "--device", self.device]
        with self._lock, writing(self.folder, "start the studio with another --runs"):
            if self._living(name):
                raise UserError(f"{name} is running already")
            self.own.mkdir(parents=True, exist_ok=True)
            with open(self._file(name, "log"), "ab") as log:
                child = subprocess.Popen(
                    # -P: so that no Python file in the current folder is imported as a library
                    [sys.executable, "-P", "-m", "dualtemp", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # it outlives the studio, and its terminal
                )
            self._children[name] = child
            with whole_file(self._file(name, "json")) as file:
                file.write(json.dumps({"pid": child.pid, "command": words}).encode())
        self._tell()

    def _living(self, name: str) -> "subprocess.Popen[bytes] | None":
        """The process of a run that this studio has started, if it has not ended."""
        child = self._children.get(name)
        return child if child is not None and child.poll() is None else None

    def _tell(self) -> None:
        with self._telling:  # so that the list published last is the newest
            self.news.publish("runs", runs=self.listed())

    def _pid(self, name: str, path: Path) -> int | None:
        """The process of a run started by an earlier studio, if it is still that process; None without /proc."""
        try:
            pid = int(json.loads(self._file(name, "json").read_text())["pid"])
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return pid if os.fsencode(str(path)) in words and b"dualtemp" in words else None

    def _file(self, name: str, ending: str) -> Path:
        return self.own / f"{name.replace('/', '_')}.{ending}"

    def _log_tail(self, name: str) -> str:
        with contextlib.suppress(OSError), open(self._file(name, "log"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            text = file.read().decode(errors="replace").replace("\r", "\n")
            lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).rstrip() for line in text.split("\n")]
            return "\n".join([line for line in lines if line][-MOST_LINES:])
        return ""

    def _watch(self) -> None:
        before: dict[str, tuple[Any, ...]] = {}
        pause = EVERY
        while not self._closing.wait(pause):
            began = time.monotonic()
            with contextlib.suppress(OSError, UserError):
                now = {name: _signs(path) for name, path in self.paths().items()}
                for name, child in list(self._children.items()):
                    now[name] = (*now.get(name, ()), child.poll())
                if now != before:
                    before = now
                    self._tell()
            pause = max(EVERY, REST * (time.monotonic() - began))


def _signs(path: Path) -> tuple[Any, ...]:
    """Signs that a run has changed, without reading a file."""
    run = RunFolder(path)
    signs: list[Any] = [held(run.lock)]
    for file in (run.metrics, run.config, run.trouble):
        with contextlib.suppress(FileNotFoundError):
            found = file.stat()
            signs.append((file.name, found.st_size, found.st_mtime_ns))
    return tuple(signs)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Write infinity, which JSON does not have, as a string."""
    infinite = (float("inf"), float("-inf"))
    return {key: str(value) if isinstance(value, float) and value in infinite else value for key, value in row.items()}

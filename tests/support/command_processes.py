"""`dualtemp ...` in real processes that begin at once: forked from one that has imported everything already.

A process is otherwise the same as one of the shell: own signals, own standard output and error, killed as one likes.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 300  # seconds for what takes one or two, on a machine that is busy with other things
ALWAYS = {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
OFTEN = ("--checkpoint-minutes", "1e-9")  # a checkpoint after every step

PROGRAM = """
import json, os, signal, sys
import torch, torch._dynamo, torch._dynamo.aot_compile
from dualtemp.torchvision_operators import declare_missing_operators
declare_missing_operators()
import timm.models.vision_transformer
torch.set_num_threads(1)
import dualtemp.training.start
from dualtemp.cli import main
for line in sys.stdin:
    asked = json.loads(line)
    if "poll" in asked:
        pid, status = os.waitpid(asked["poll"], os.WNOHANG)
        answer = {"code": os.waitstatus_to_exitcode(status) if pid else None}
    else:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.environ.clear()
            os.environ.update(asked["env"])
            for stream, path in ((1, asked["out"]), (2, asked["err"])):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), stream)
            try:
                exec(asked["first"])
                code = main(asked["words"])
            except BaseException:
                import traceback
                traceback.print_exc()
                code = 1
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)
        answer = {"pid": pid}
    print(json.dumps(answer), flush=True)
""".replace(
    "import timm", "from dualtemp.torchvision_operators import declare_missing_operators as d; d()\nimport timm"
)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


class Command:
    """A command that runs."""

    def __init__(self, commands: "Commands", pid: int, out: Path, err: Path) -> None:
        self.commands, self.pid, self.out, self.err = commands, pid, out, err
        self.code: int | None = None

    def poll(self) -> int | None:
        if self.code is None:
            self.code = self.commands.ask({"poll": self.pid})["code"]
        return self.code

    def send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float = PATIENCE) -> Ended:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                self.send(signal.SIGKILL)
                raise AssertionError(f"not at its end after {timeout} s: {self.out.read_text()} {self.err.read_text()}")
            time.sleep(0.01)
        assert self.code is not None
        return Ended(self.code, self.out.read_text(), self.err.read_text())


class Commands:
    """Starts commands; their output goes to files below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count, self.running = folder, 0, []
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ALWAYS},
        )

    def ask(self, asked: dict) -> dict:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(
        self, *words: object, env: dict[str, str] | None = None, first: str = "", to: str | None = None
    ) -> Command:
        """first: Python that the process runs before the command; to: a file for standard output, not read again."""
        self.count += 1
        out, err = (self.folder / f"{self.count}.{name}" for name in ("out", "err"))
        out.touch()
        err.touch()
        asked = {"words": [str(word) for word in words], "out": to or str(out), "err": str(err), "first": first}
        asked["env"] = {**os.environ, **ALWAYS, **(env or {})}  # of now: the processes are shared by all tests
        command = Command(self, self.ask(asked)["pid"], out, err)
        self.running.append(command)
        return command

    def run(self, *words: object, timeout: float = PATIENCE, **how: Any) -> Ended:
        return self.start(*words, **how).wait(timeout)

    def close(self) -> None:
        for command in self.running:
            command.send(signal.SIGKILL)
        self.process.kill()
        self.process.wait()


def together(commands: Commands, *words: object, count: int = 2, first: str = "") -> list[Command]:
    """Start processes that form a group; one alone forms none. first: as for `Commands.start`, in all of them."""
    if count == 1:
        return [commands.start(*words, first=first)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
    ranks = [{**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    return [commands.start(*words, env=rank, first=first) for rank in ranks]


def halting(name: str, *times: int, after: Path | None = None, cut: bool = True) -> str:
    """Python for `first`: the process stops itself while a file is half-written, and a test can kill it there.

    name: a pattern of the unfinished file's name; times: at which of these files, by default the first; after: count
    once this exists; cut: False for a process that is to go on, which needs the whole file.
    """
    return f"""
import fnmatch, os, signal
seen = 0
def halt(file, finish=os.fsync):
    global seen
    at = os.readlink(f"/proc/self/fd/{{file}}")
    if fnmatch.fnmatch(os.path.basename(at), {name!r}) and ({after is None} or os.path.exists({str(after)!r})):
        seen += 1
        if seen in {times or (1,)}:
            if {cut}: os.ftruncate(file, os.fstat(file).st_size // 2)
            os.kill(os.getpid(), signal.SIGSTOP)
    finish(file)
os.fsync = halt
"""


def kill_where_it_halts(command: Command, *others: Command) -> None:
    """Kill a command that was started with `halting`, and others that form a group with it."""
    assert until(command, lambda: halted(command)), (command.code, command.err.read_text())
    for each in (command, *others):
        each.send(signal.SIGKILL)
    assert command.wait().code == -signal.SIGKILL
    for each in others:
        each.wait()


def signal_where_it_halts(command: Command, number: int) -> None:
    """Send a signal to a command that was started with `halting(..., cut=False)`, and let it go on."""
    assert until(command, lambda: halted(command)), (command.code, command.err.read_text())
    command.send(number)
    command.send(signal.SIGCONT)


def halted(command: Command) -> bool:
    return is_stopped(command.pid)


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal, its own or another's."""
    return ") T " in Path(f"/proc/{pid}/stat").read_text()


def until(command: Command, happened: Any, timeout: float = PATIENCE) -> bool:
    """Wait for something to happen while a command runs; False if it ends before."""
    deadline = time.monotonic() + timeout
    while not happened():
        if command.poll() is not None:
            return False
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return True

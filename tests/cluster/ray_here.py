"""A real Ray cluster on this machine, a head and two nodes, for a grid with --on ray; prints its protocol.

    python tests/cluster/ray_here.py

A node is killed in the middle of a run, and a command is stopped and repeated; the numbers must be those of --on local.
Needs dualtemp[ray]; takes a few minutes. docs/cluster.md shows a protocol.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 900
GRID = """
title: A grid on Ray
data: digits
fixed: {backbone: resnet_mini, batch: 64, subset: 256, epochs: 30}
columns: {tau_beta: [0.1, 1]}
seeds: 1
"""


def say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), "", text, flush=True)


def until(happened: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def grid(folder: Path, results: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dualtemp", "grid", str(folder / "grid.yaml"), "--results", str(folder / results)]
    return subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen[str]) -> int:
    said, _ = process.communicate(timeout=PATIENCE)
    for line in said.splitlines():
        print(f"          {line}", flush=True)
    return process.returncode


def numbers(folder: Path) -> dict[str, Any]:
    found = {path.name: json.loads(path.read_text()) for path in folder.glob("*-s*.json")}
    return {name: (one["status"], one["losses"], one["metrics"]["probe_top1"]) for name, one in found.items()}


def add_node(cluster: Any, cores: int) -> Any:
    """Start a node; on a busy machine Ray gives up after half a minute, and is asked again."""
    for _ in range(5):
        try:
            return cluster.add_node(num_cpus=cores, include_dashboard=False)
        except Exception as error:
            say(f"a node did not start: {error}")
    raise SystemExit("no node starts on this machine")


def main() -> None:
    import ray
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="ray_here.") as name:
        folder = Path(name)
        (folder / "grid.yaml").write_text(GRID)
        cluster = Cluster()
        try:
            _, *nodes = [add_node(cluster, cores) for cores in (0, 1, 1)]
            os.environ["RAY_ADDRESS"] = str(cluster.address)
            say(f"ray {ray.__version__}: a head without cores, {len(nodes)} nodes with one core each")
            say("1. two runs on two nodes; one node is killed once both runs have an epoch behind them")
            running = grid(folder, "killed", "--on", "ray")
            begun = lambda: len(list((folder / "killed" / "runs").glob("*/metrics.jsonl"))) == 2  # noqa: E731
            until(lambda: begun() or running.poll() is not None)
            cluster.remove_node(nodes[1], allow_graceful=False)
            say("a node is gone; its run goes on where there is room")
            assert finish(running) == 0
            assert len(numbers(folder / "killed")) == 2
            say("2. one node: the command is stopped in the middle, and repeated")
            stopped = grid(folder, "stopped", "--on", "ray")
            until(lambda: list((folder / "stopped" / "runs").glob("*/metrics.jsonl")) or stopped.poll() is not None)
            stopped.send_signal(signal.SIGTERM)
            say(f"it ended with code {finish(stopped)}")
            saved = len(list((folder / "stopped" / "runs").glob("*/checkpoints/step-*.ckpt")))
            say(f"checkpoints of stopped runs: {saved}; the same command again:")
            assert saved
            assert finish(grid(folder, "stopped", "--on", "ray")) == 0
        finally:
            cluster.shutdown()
        say("3. the same grid with --on local --jobs 1")
        assert finish(grid(folder, "local", "--jobs", "1", "--threads", "1")) == 0
        expected = numbers(folder / "local")
        same = [numbers(folder / name) == expected for name in ("killed", "stopped")]
        say(f"the same numbers, bit for bit: {same}")
        assert same == [True, True]


if __name__ == "__main__":
    main()

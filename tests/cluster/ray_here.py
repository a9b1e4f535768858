"""A real Ray cluster on this machine, a head and two nodes, for grids and for embed with --on ray; prints its protocol.

    python tests/cluster/ray_here.py [grids | embed]

A node is killed in the middle of a run, and of a part; commands are stopped and repeated. Numbers must be those of
--on local, rows those of one process. Needs dualtemp[ray]; takes a few minutes. docs/cluster.md shows a protocol.
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

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from drawn_photos import draw_photos

PATIENCE = 900
IMAGES = 480
STOPPED = 130  # the exit code of a command that was stopped and saved what there was
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


def carry_grids(folder: Path, cluster: Any, nodes: list[Any]) -> None:
    say("1. two runs on two nodes; one node is killed once both runs have an epoch behind them")
    running = grid(folder, "killed", "--on", "ray")
    begun = lambda: len(list((folder / "killed" / "runs").glob("*/metrics.jsonl"))) == 2  # noqa: E731
    until(lambda: begun() or running.poll() is not None)
    cluster.remove_node(nodes.pop(), allow_graceful=False)
    say("a node is gone; its run goes on where there is room")
    assert finish(running) == 0
    assert len(numbers(folder / "killed")) == 2
    say("2. one node: the command is stopped in the middle, and repeated")
    stopped = grid(folder, "stopped", "--on", "ray")
    until(lambda: list((folder / "stopped" / "runs").glob("*/metrics.jsonl")) or stopped.poll() is not None)
    stopped.send_signal(signal.SIGTERM)
    code = finish(stopped)
    say(f"it ended with code {code}")
    assert code == STOPPED
    saved = len(list((folder / "stopped" / "runs").glob("*/checkpoints/step-*.ckpt")))
    say(f"checkpoints of stopped runs: {saved}; the same command again:")
    assert saved
    assert finish(grid(folder, "stopped", "--on", "ray")) == 0


def compare_grids(folder: Path) -> None:
    say("3. the same grid with --on local --jobs 1")
    assert finish(grid(folder, "local", "--jobs", "1", "--threads", "1")) == 0
    expected = numbers(folder / "local")
    same = [numbers(folder / name) == expected for name in ("killed", "stopped")]
    say(f"the same numbers, bit for bit: {same}")
    assert same == [True, True]


def prepare_embedding(folder: Path) -> None:
    """Photographs, one of them broken, an encoder, and the rows that one process makes."""
    draw_photos(folder / "photos", IMAGES)[7].write_bytes(b"broken")
    words = ["--subset", "64", "--batch", "32", "--epochs", "1", "--image-size", "64", "--backbone", "resnet18"]
    words += ["--init", "none", "--no-page"]
    words += ["--data", str(folder / "photos"), "--out", str(folder / "encoder"), "--workers", "0"]
    subprocess.run([sys.executable, "-m", "dualtemp", "train", *words], check=True, capture_output=True)
    assert finish(embed(folder, "one.parquet")) == 0


def embed(folder: Path, out: str, *words: str) -> subprocess.Popen[str]:
    given = ["--data", str(folder / "photos"), "--out", str(folder / out), "--batch", "8", "--workers", "0"]
    command = [sys.executable, "-m", "dualtemp", "embed", str(folder / "encoder"), *given, "--device", "cpu", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def embed_parts(folder: Path, cluster: Any, nodes: list[Any]) -> None:
    say(f"4. embed --on ray: {IMAGES} images in six parts; one process makes the same rows first")
    prepare_embedding(folder)
    if len(nodes) < 2:
        nodes.append(add_node(cluster, 1))

    def in_hand(out: str, least: int) -> Callable[[], bool]:
        return lambda: sum(path.stat().st_size > 8000 for path in (folder / out).glob(".part-*.work")) >= least

    running = embed(folder, "parts", "--parts", "6", "--on", "ray")
    until(lambda: in_hand("parts", 2)() or running.poll() is not None)
    cluster.remove_node(nodes.pop(), allow_graceful=False)
    say("a node was killed while both had a part in hand")
    assert finish(running) == 0
    say("5. one node, another folder: the command is stopped in the middle, and repeated")
    stopped = embed(folder, "stopped_parts", "--parts", "6", "--on", "ray")
    until(lambda: in_hand("stopped_parts", 1)() or stopped.poll() is not None)
    stopped.send_signal(signal.SIGTERM)
    code = finish(stopped)
    say(f"it ended with code {code}; the same command again:")
    assert code == STOPPED
    assert finish(embed(folder, "stopped_parts", "--parts", "6", "--on", "ray")) == 0
    say("6. the rows of both folders and of one process")
    import pyarrow.parquet as pq

    one, *others = (pq.read_table(folder / name) for name in ("one.parquet", "parts", "stopped_parts"))
    assert one.num_rows == IMAGES - 1
    columns = ("name", "features")
    same = [all(one[c].combine_chunks().equals(other[c].combine_chunks()) for c in columns) for other in others]
    say(f"the same {one.num_rows} rows, bit for bit: {same}")
    assert same == [True, True]


def main() -> None:
    import ray
    from ray.cluster_utils import Cluster

    only = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory(prefix="ray_here.") as name:
        folder = Path(name)
        (folder / "grid.yaml").write_text(GRID)
        cluster = Cluster()
        try:
            _, *nodes = [add_node(cluster, cores) for cores in (0, 1, 1)]
            os.environ["RAY_ADDRESS"] = str(cluster.address)
            say(f"ray {ray.__version__}: a head without cores, {len(nodes)} nodes with one core each")
            if only != "embed":
                carry_grids(folder, cluster, nodes)
            if only != "grids":
                embed_parts(folder, cluster, nodes)
        finally:
            cluster.shutdown()
        if only != "embed":
            compare_grids(folder)


if __name__ == "__main__":
    main()

"""Two nodes, as network namespaces of this machine: torchrun on each, joined by a cable that only they have."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_processes import PATIENCE
from run_contents import different, everything

# Batch norm of each process sees its own share: as many processes must give the same bits, wherever they run.
MINI = ("--data", "digits", "--batch", "64", "--subset", "256", "--epochs", "2", "--backbone", "resnet_mini")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def nodes() -> Iterator[dict[str, str]]:
    """Two namespaces with an address each."""
    if shutil.which("ip") is None:
        pytest.skip("iproute2 is not installed")
    found = {f"dualtemp-{os.getpid()}-{n}": f"10.213.77.{n}" for n in (1, 2)}
    first, second = found
    try:
        try:
            for name in found:
                ip("netns", "add", name)
            ip("link", "add", "cable", "netns", first, "type", "veth", "peer", "name", "cable", "netns", second)
            for name, address in found.items():
                ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
                for link in ("lo", "cable"):
                    ip("-n", name, "link", "set", link, "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no right to make network namespaces: {error.stderr.decode().strip()}")
        yield found
    finally:
        for name in found:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def launch(nodes: dict[str, str], *words: object) -> list[subprocess.Popen[str]]:
    """Start torchrun with one process on every node."""
    first = next(iter(nodes.values()))
    started = []
    for name, address in nodes.items():
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{first}:29511", "--rdzv-id", "nodes"]
        torchrun += ["--rdzv-conf", f"is_host={int(address == first)}"]  # a name would not tell: they share one
        torchrun += ["--local-addr", address, "-m", "dualtemp", *map(str, words)]
        environment = {**ENVIRONMENT, "GLOO_SOCKET_IFNAME": "cable"}
        started.append(
            subprocess.Popen(
                ["ip", "netns", "exec", name, *torchrun],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return started


def end(started: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    try:
        said = [process.communicate(timeout=PATIENCE)[0] for process in started]
        return [(process.returncode, text) for process, text in zip(started, said, strict=True)]
    finally:
        for process in started:
            process.terminate()  # torchrun ends its processes
            process.wait()


@pytest.mark.slow
def test_two_processes_on_two_nodes_make_the_bits_of_two_on_one(nodes: dict[str, str], tmp_path: Path) -> None:
    whole, path = tmp_path / "whole", tmp_path / "run"
    one = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "dualtemp"]
    subprocess.run([*one, "train", *MINI, "--out", str(whole)], env=ENVIRONMENT, check=True, capture_output=True)

    started = launch(nodes, "train", *MINI, "--out", path)
    for code, text in end(started):
        assert code == 0, text
    assert different(everything(path), everything(whole)) == []

"""Which device a process takes, and that the way processes talk follows from it. No test here needs a GPU."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_processes import PATIENCE

from dualtemp.device import Place, backend_of, device_name, open_device, seed_generators
from dualtemp.errors import UserError


@pytest.mark.parametrize(
    ("asked", "place", "gpus", "mps", "expected"),
    [
        ("auto", Place(), 0, False, "cpu"),
        ("auto", Place(), 0, True, "mps"),
        ("auto", Place(), 2, False, "cuda"),
        ("cuda:1", Place(), 2, False, "cuda:1"),
        ("auto", Place(1, 2, 2), 2, False, "cuda:1"),
        ("cuda", Place(3, 4, 8), 4, False, "cuda:3"),
        ("auto", Place(1, 2, 2), 0, True, "cpu"),
        ("cpu", Place(1, 2, 2), 2, False, "cpu"),
        ("cpu", Place(3, 4, 4), 1, False, "cpu"),
        ("cuda:1", Place(0, 1, 2), 2, False, "cuda:1"),  # one process on each of two hosts
    ],
)
def test_a_process_takes_the_device_that_was_asked_for_or_its_own(
    asked: str, place: Place, gpus: int, mps: bool, expected: str
) -> None:
    assert device_name(asked, place, gpus, mps) == expected
    assert backend_of(torch.device(expected)) == ("nccl" if "cuda" in expected else "gloo")


@pytest.mark.parametrize(
    ("asked", "place", "gpus", "said"),
    [
        (
            "auto",
            Place(0, 4, 4),
            2,
            "4 processes on a host with 2 GPUs: start --nproc-per-node 2, or give --device cpu",
        ),
        ("cuda", Place(1, 2, 2), 1, "2 processes on a host with 1 GPU: start --nproc-per-node 1"),
        ("cuda:0", Place(1, 2, 2), 2, "--device cuda:0 is one GPU for 2 processes: give --device cuda"),
        ("mps", Place(0, 2, 2), 0, "'mps' works with one process"),
    ],
)
def test_what_processes_cannot_share_is_refused_in_one_line(asked: str, place: Place, gpus: int, said: str) -> None:
    with pytest.raises(UserError) as refused:
        device_name(asked, place, gpus, False)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Place()),
        ({"WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, Place()),
        ({"WORLD_SIZE": "16", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}, Place(3, 8, 16)),
        ({"WORLD_SIZE": "16", "LOCAL_RANK": "3"}, Place(3, 4, 16)),
    ],
)
def test_the_place_is_read_from_the_environment(
    environment: dict[str, str], expected: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Place.announced() == expected


@pytest.mark.parametrize(("asked", "said"), [("gpu", "no device is called 'gpu'"), ("cuda:7", "cannot be used")])
def test_a_device_that_is_not_there_is_one_line(asked: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        open_device(asked)


BESIDE_GPU = """
import sys, torch
torch.cuda.is_available, torch.cuda.device_count = (lambda: True), (lambda: 1)
from dualtemp.cli import main
out, *words = sys.argv[1:]
refused = main(["train", *words, "--out", f"{out}/refused"])
print(refused, main(["train", *words, "--device", "cpu", "--out", f"{out}/run"]))
"""


@pytest.mark.slow
def test_processes_on_the_cpu_of_a_host_with_a_gpu_leave_it_alone(tmp_path: Path) -> None:
    """Where torch tells of one GPU, two processes are refused without a word of the device, and run on the CPU."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    words = ("--data", "digits", "--subset", "64", "--batch", "64", "--epochs", "1", "--backbone", "resnet_mini")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BESIDE_GPU, str(tmp_path), *words, "--quiet", "--no-page"],
            env={**os.environ, **group, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    try:
        (out, err), (other_out, _) = (process.communicate(timeout=PATIENCE) for process in processes)
    finally:
        for process in processes:
            process.kill()
    assert (out, other_out) == ("2 0\n", "2 0\n"), err
    assert "2 processes on a host with 1 GPU: start --nproc-per-node 1, or give --device cpu" in err
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("seed", [0, 7, 2**62 - 1])
def test_seeded_generators_draw_as_a_generator_of_that_seed_does(seed: int) -> None:
    with torch.random.fork_rng(devices=[]):
        seed_generators(seed, torch.device("cpu"))
        drawn = torch.rand(100)
        torch.manual_seed(seed)
        assert torch.equal(drawn, torch.rand(100))
    assert torch.equal(drawn, torch.rand(100, generator=torch.Generator().manual_seed(seed)))

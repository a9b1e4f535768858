"""Train with every framework on the pretended device: python train.py GUARD OUT < runs.json > what was noted.

Reads {name: settings of `dualtemp.train`, and "plugin", a file}; prints {name: {"error", "waits", "copies", "steps",
"loss"}}, noted in the steps after each run's first, which builds tables and moves constants; as "mistakes" what comes
of some that are made on purpose; as "losses" and "fake losses" what is noted in every loss of the self-test, computed
and only traced.
"""

import ctypes
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)  # before torch looks for devices
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch  # noqa: E402
from pretended_cuda.device import WrongDevice, log, pretended_cuda  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from dualtemp.torchvision_operators import declare_missing_operators  # noqa: E402

declare_missing_operators()

import dualtemp  # noqa: E402
from dualtemp.data.loading.loader import Batch, Loader  # noqa: E402
from dualtemp.frameworks.registry import add_plugin  # noqa: E402
from dualtemp.self_test.parity import CASES  # noqa: E402
from dualtemp.training import trainer as loop  # noqa: E402
from dualtemp.training.epoch_statistics import EpochStatistics  # noqa: E402

steps = 0


class WatchedLoader(Loader):
    """A step begins where its batch is asked for."""

    def batches(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        batches = super().batches(epoch, start_step)
        for number in range(self.steps - start_step):
            log.inside = number > 0
            yield next(batches)


class WatchedMeter(EpochStatistics):
    """And ends where its loss is handed in."""

    def add(self, *args: Any) -> None:
        global steps
        super().add(*args)
        steps += log.inside
        log.inside = False


def mistakes() -> dict[str, Any]:
    """Wait for the device in three ways, and mix it with the CPU."""
    log.inside, error = True, None
    there = torch.ones(2, device="cuda")
    there.sum().item()
    there[there > 0].sum()
    torch.ones(2).to("cuda", non_blocking=True)
    try:
        torch.add(there, torch.ones(2))
    except WrongDevice as caught:
        error = str(caught)
    log.inside = False
    return {"error": error, "waits": log.waits.copy()}


def every_loss() -> dict[str, Any]:
    """Forward and backward of each on the pretended device, once to build tables and once watched."""
    noted = {}
    for name, case in CASES.items():
        log.waits.clear()
        error, q, k, keys = None, *(torch.randn(n, 8, device="cuda").requires_grad_() for n in (6, 6, 20))
        try:
            for log.inside in (False, True):
                loss = case.loss(q, k, keys)
                loss.backward(torch.ones_like(loss))
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
        log.inside = False
        noted[name] = {"error": error, "waits": log.waits.copy(), "learned": q.grad is not None}
    return noted


def every_loss_traced() -> dict[str, list[str]]:
    """Devices of the values and gradients of each, of tensors that hold nothing but a shape and a device."""
    noted = {}
    with FakeTensorMode():
        for name, case in CASES.items():
            leaves = [torch.empty(n, 8, device="cuda:0").requires_grad_() for n in (6, 6, 20)]
            loss = case.loss(leaves[0], leaves[1], leaves[2])
            loss.backward(torch.ones_like(loss))
            noted[name] = [str(x.device) for x in (loss, *(leaf.grad for leaf in leaves)) if x is not None]
    return noted


def main(out: str) -> None:
    global steps
    loop.Loader, loop.EpochStatistics = WatchedLoader, WatchedMeter  # pyright: ignore
    noted: dict[str, Any] = {"fake losses": every_loss_traced()}
    with pretended_cuda():
        noted["mistakes"] = mistakes()
        noted["losses"] = every_loss()
        log.waits.clear()
        for name, settings in json.load(sys.stdin).items():
            log.waits.clear()
            log.copies.clear()
            steps, error, made = 0, None, {}
            if "plugin" in settings:
                add_plugin(settings.pop("plugin"))
            try:
                made = dualtemp.train(**settings, out=f"{out}/{name}", device="cuda", page=False, quiet=True)
            except Exception as failure:
                error = f"{type(failure).__name__}: {failure}"
            log.inside = False
            noted[name] = {
                "error": error,
                "waits": log.waits.copy(),
                "copies": log.copies.copy(),
                "steps": steps,
                "loss": made.get("loss"),
            }
    print(json.dumps(noted))


if __name__ == "__main__":
    main(sys.argv[2])

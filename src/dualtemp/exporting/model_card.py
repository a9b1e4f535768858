"""The model card of an export: what the encoder is, what it was measured at, how to load it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualtemp.config import Settings, to_yaml
from dualtemp.exporting.loading import how_to_load, how_to_preprocess
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.metrics import measures


@dataclass(frozen=True)
class CardFacts:
    """What a card tells.

    run: of the encoder; chosen: its settings; classes: names by label; recipe: of `describe_backbone`; how:
    preprocessing.json; manifest: export.json, with all formats that are there.
    """

    run: RunFolder
    chosen: Settings
    classes: tuple[str, ...]
    recipe: dict[str, Any]
    how: dict[str, Any]
    manifest: dict[str, Any]

    @property
    def is_start(self) -> bool:
        """Whether these are pretrained weights that no run has trained further."""
        return not self.run.config.is_file()


def model_card(facts: CardFacts) -> str:
    """README.md of the export, in Markdown; its Python runs in the folder, without dualtemp."""
    parts = [_opening(facts), _figures(facts), _data(facts), _loading(facts), _settings(facts), _limits(facts)]
    if facts.is_start:  # of which nothing was measured, and whose data are not known
        parts = [_opening(facts), _loading(facts), _limits(facts)]
    return "\n\n".join(parts) + "\n"


def _opening(facts: CardFacts) -> str:
    how, chosen, formats = facts.how, facts.chosen, facts.manifest["formats"]
    library = "timm" if "timm" in formats else "pytorch"
    tag = "supervised" if chosen.framework.learns_from_labels or facts.is_start else "self-supervised"
    return f"""---
library_name: {library}
tags:
- image-feature-extraction
- {tag}-learning
---

# {_plain(facts.manifest["run"])}: an image encoder

A `{facts.recipe["model"]}`{_stem(facts.recipe)} that turns images of {how["size"]} x {how["size"]} pixels with \
{how["channels"]} channel{"s" if how["channels"] > 1 else ""} into {facts.recipe["num_features"]} features. \
{_made(facts)}"""


def _made(facts: CardFacts) -> str:
    """Where the weights come from: a start as it is, or a run, and what it began from."""
    chosen, version = facts.chosen, facts.manifest["dualtemp"]
    if facts.is_start:
        return (
            f"These are the weights of `{_plain(str(chosen.init))}` (content {chosen.init_content}) as they were "
            f"found, not trained further, written by dualtemp {version}."
        )
    learned = "with" if chosen.framework.learns_from_labels else "without"
    epochs = "" if facts.manifest["epoch"] is None else f" after epoch {facts.manifest['epoch']} of {chosen.epochs}"
    begun = facts.run.made_with().get("start")
    began = ""
    if isinstance(begun, dict):
        origin = _plain(str(begun.get("origin") or chosen.init))
        began = f" It began from {origin} (content {chosen.init_content}), and takes images as that does."
    return (
        f"It was trained {learned} labels by {chosen.method}{_temperatures(chosen)} with dualtemp {version}; these are "
        f"its weights{epochs}.{began}"
    )


def _stem(recipe: dict[str, Any]) -> str:
    return " with a stem for small images" if recipe["replaced"] else ""


def _temperatures(chosen: Settings) -> str:
    alpha, beta = chosen.get("tau_alpha"), chosen.get("tau_beta")
    if alpha is None:
        return ""
    return f" (tau_alpha {alpha:g}{'' if beta is None else f', tau_beta {beta}'})"


def _figures(facts: CardFacts) -> str:
    rows = [*_of_training(facts), *_of_evaluation(facts.run.path / "evaluation.json")]
    if not rows:
        return "## Measured\n\nNothing was measured. `dualtemp evaluate` measures on any labelled set of images."
    heads = "| measured | encoder | images | training labels | top 1, % | top 5, % |\n|---|---|---|---|---|---|"
    return "\n".join(["## Measured", "", heads, *(f"| {' | '.join(row)} |" for row in rows)])


def _of_training(facts: CardFacts) -> list[list[str]]:
    """What the run itself measured last on its validation images."""
    last: dict[str, Any] = {}
    for line in facts.run.history():
        last |= {key: value for key, value in line.items() if value is not None}
    images = (facts.run.made_with().get("train") or {}).get("images")
    bank = facts.chosen.knn_images
    labels = {"probe_top1": images or "all", "knn_top1": min(bank, images or bank)}
    return [
        [each.card, "trained", "validation", str(labels.get(key, "")), _number(last[key]), _number(last.get(each.top5))]
        for key, each in measures().items()
        if each.card and key in last
    ]


def _of_evaluation(path: Path) -> list[list[str]]:
    """What `dualtemp evaluate` found, if it was run."""
    try:
        measured = json.loads(path.read_text())["measured"]
        return [
            [
                _plain(str(each["name"])),
                _plain(str(each.get("encoder", ""))),
                _plain(str(each.get("data", ""))),
                str(each.get("labels", "")),
                _number(each.get("top1")),
                _number(each.get("top5")),
            ]
            for each in measured
            if each.get("encoder") != "online"  # stands above
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _data(facts: CardFacts) -> str:
    made = facts.run.made_with()
    lines = [f"Trained on `{_plain(Path(facts.chosen.data).name)}`: {_count(made.get('train'))}."]
    if made.get("unlabelled"):
        lines.append(f"And without labels: {_count(made['unlabelled'])}.")
    if made.get("test"):
        lines.append(f"Held out for validation, never trained on: {_count(made['test'])}.")
    if facts.classes:
        shown = ", ".join(_plain(name) for name in facts.classes[:20])
        more = f" and {len(facts.classes) - 20} more" if len(facts.classes) > 20 else ""
        lines.append(f"{len(facts.classes)} classes: {shown}{more}.")
    lines.append("The licence of these images is not known to dualtemp: find it out before you pass the weights on.")
    return "\n".join(["## Data", "", *lines])


def _count(part: Any) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("images"), int):
        return "number of images not recorded"
    content = f" (content {part['fingerprint']})" if part.get("fingerprint") else ""
    return f"{part['images']:,} images{content}"


def _loading(facts: CardFacts) -> str:
    parts = [
        "## Use",
        "",
        "Nothing here needs dualtemp. Prepare an image as `preprocessing.json` says:",
        "",
        _python(how_to_preprocess(facts.how)),
        "",
        "Some pixels that Pillow has resized differ from those of training by one or two grey levels of 255; images "
        "of the right size do not differ. Images with transparency or more than 8 bits want what `decode` says there "
        "first.",
    ]
    for title, text, program in how_to_load(facts.manifest["formats"], facts.recipe, facts.how):
        parts += ["", f"### {title}", "", text, "", _python(program)]
    return "\n".join(parts)


def _settings(facts: CardFacts) -> str:
    chosen = facts.chosen.model_copy(update={"data": Path(facts.chosen.data).name})
    if chosen.init is not None:
        chosen = chosen.model_copy(update={"init": Path(chosen.init).name})
    made = facts.run.made_with()
    versions = ", ".join(
        f"{name} {made[name]}" for name in ("python", "torch", "torchvision", "timm") if made.get(name)
    )
    told = f"\n\nTrained with {versions}." if versions else ""
    return f"## Settings\n\n```yaml\n{to_yaml(chosen)}```{told}"


def _limits(facts: CardFacts) -> str:
    lines = [
        "The features carry what the training images had in common with yours, biases included; figures above hold for "
        "the data that they name. Measure on your own images before you rely on them.",
    ]
    if any(line.get("collapsed") for line in facts.run.history()[-1:]):
        lines.insert(0, "**The features have collapsed: they hardly differ from image to image.**")
    return "\n\n".join(["## Limits", *lines])


def _python(program: str) -> str:
    return f"```python\n{program}\n```"


def _number(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else ""


def _plain(text: str) -> str:
    """Text that Markdown takes as it is: names of folders may hold anything."""
    return " ".join(text.replace("|", "/").replace("`", "'").replace("<", "(").replace(">", ")").split())

"""The model card of an export: what the encoder is, what it was measured at, how to load it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualtemp.config import Settings, to_yaml
from dualtemp.evaluation.answers import TRAINED
from dualtemp.evaluation.evaluation_file import LABELS_OF, VALIDATION
from dualtemp.exporting.loading import how_to_classify, how_to_preprocess
from dualtemp.exporting.lookup import export_formats
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.kept_encoder import kept_history
from dualtemp.runs.metrics import measures
from dualtemp.runs.record import evaluated, read_run


@dataclass(frozen=True)
class CardFacts:
    """What a model card is written from.

    run: the encoder's; settings: its settings; classes: names by label; recipe: from `describe_backbone`; how: the
    content of preprocessing.json; manifest: that of export.json, with all formats in the folder.
    """

    run: RunFolder
    settings: Settings
    classes: tuple[str, ...]
    recipe: dict[str, Any]
    how: dict[str, Any]
    manifest: dict[str, Any]

    @property
    def is_fine_tuned(self) -> bool:
        """Whether these are weights that fine-tuning on labels has changed."""
        return self.manifest.get("classifier", {}).get("learned_by") == "fine-tuning"

    @property
    def history(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl up to the epoch that these weights are of."""
        return kept_history(self.run.history(), self.settings)

    @property
    def is_start(self) -> bool:
        """Whether these are pretrained weights that no run has trained further."""
        return not self.run.config.is_file()


def model_card(facts: CardFacts) -> str:
    """Write README.md of an export, in Markdown; its Python programs run in the folder, without dualtemp."""
    parts = [_opening, _figures, _data, _loading, _settings_part, _limits]
    if facts.is_start:  # nothing of it was measured, and its data are unknown
        parts = [_opening, _loading, _limits]
    return "\n\n".join(part(facts) for part in parts) + "\n"


def _opening(facts: CardFacts) -> str:
    how, formats = facts.how, facts.manifest["formats"]
    libraries = [export_formats()[name].library for name in formats]
    library = next((name for name in libraries if name != "pytorch"), "pytorch")
    labels = facts.settings.framework.learns_from_labels or facts.is_start or facts.is_fine_tuned
    tag = "supervised" if labels else "self-supervised"
    return f"""---
library_name: {library}
tags:
- image-feature-extraction
- {tag}-learning
---

# {_plain(facts.manifest["run"])}: an image encoder

A `{facts.recipe["model"]}`{_stem(facts.recipe)} that turns images of {how["size"]} x {how["size"]} pixels with \
{how["channels"]} channel{"s" if how["channels"] > 1 else ""} into {facts.recipe["num_features"]} features. \
{_origin(facts)}"""


def _origin(facts: CardFacts) -> str:
    """Say where the weights come from: a start as it is, or a run, and what it began from."""
    settings, version = facts.settings, facts.manifest["dualtemp"]
    if facts.is_start:
        return (
            f"These are the weights of `{_plain(_last_part(settings.init))}` (content {settings.init_content}) as they "
            f"were found, not trained further, written by dualtemp {version}."
        )
    learned = "with" if settings.framework.learns_from_labels else "without"
    epochs = "" if facts.manifest["epoch"] is None else f" after epoch {facts.manifest['epoch']} of {settings.epochs}"
    if facts.run.history() and not facts.history:
        epochs = " before the first epoch, since no later ones were better"
    begun = facts.run.read_environment().get("start")
    began = ""
    if isinstance(begun, dict):
        origin = str(begun.get("origin") or settings.init)
        is_path = origin == str(Path(str(begun.get("word"))))  # as of a run, a folder or a file
        origin = _plain(_last_part(origin) if is_path else origin)
        began = f" It began from {origin} (content {settings.init_content}), and takes images as that does."
    return (
        f"It was trained {learned} labels by {settings.method}{_temperatures(settings)} with dualtemp {version}; these "
        f"are its weights{epochs}{_tuned(facts)}.{began}"
    )


def _tuned(facts: CardFacts) -> str:
    if not facts.is_fine_tuned:
        return ""
    made = facts.manifest["classifier"]
    return f", then fine-tuned with labels for {made['epochs']} epochs of {made['images']:,} images"


def _stem(recipe: dict[str, Any]) -> str:
    return " with a stem for small images" if recipe["replaced"] else ""


def _temperatures(settings: Settings) -> str:
    alpha, beta, weight = settings.get("tau_alpha"), settings.in_effect("tau_beta"), settings.get("weight")
    if alpha is None:
        return ""
    words = [f"tau_alpha {alpha:g}", *([] if beta is None else [f"tau_beta {beta}"])]
    return f" ({', '.join([*words, *([] if weight in (None, 'sigmoid') else [f'weight {weight}'])])})"


def _figures(facts: CardFacts) -> str:
    rows = [*_of_training(facts), *_of_evaluation(facts)]
    if facts.is_fine_tuned:  # other weights than all else was measured with, also than those tuned on other data
        rows = [row for row in rows if row[:3] == ["fine-tuning", TRAINED, VALIDATION]]
    if not rows:
        return "## Measured\n\nNothing was measured. `dualtemp evaluate` measures on any set of labeled images."
    heads = "| measured | encoder | images | training labels | top 1, % | top 5, % |\n|---|---|---|---|---|---|"
    return "\n".join(["## Measured", "", heads, *(f"| {' | '.join(row)} |" for row in rows)])


def _of_training(facts: CardFacts) -> list[list[str]]:
    """The run's last measurements of these weights on its validation images."""
    last: dict[str, Any] = {}
    for line in facts.history:
        last |= {key: value for key, value in line.items() if value is not None}
    made = facts.run.read_environment()
    images = max(0, ((made.get("train") or {}).get("images") or 0) - (made.get("held_out") or 0))
    bank = facts.settings.knn_images
    labels = {"probe_top1": images or "all", "knn_top1": min(bank, images or bank)}
    return [
        [each.card, "trained", "validation", str(labels.get(key, "")), _number(last[key]), _number(last.get(each.top5))]
        for key, each in measures().items()
        if each.card and key in last
    ]


def _of_evaluation(facts: CardFacts) -> list[list[str]]:
    """The results of `dualtemp evaluate`, if it has measured these weights."""
    _, rows, old = evaluated(read_run(facts.run.path))
    return [
        [
            *(_plain(_without_folders(str(each.get(key, "")))) for key in ("name", "encoder", "data", "labels")),
            *(_number(each.get(key)) for key in ("top1", "top5")),
        ]
        for each in rows
        if not old and each.get("encoder") != "online"  # stands above
    ]


def _without_folders(name: str) -> str:
    """A name of data without an absolute path, which is nobody's business: "photos, labels of labels.csv"."""
    return LABELS_OF.join(Path(part).name if part.startswith("/") else part for part in name.split(LABELS_OF))


def _last_part(path: Any) -> str:
    """The last part of a path: where things lie is nobody's business."""
    return Path(str(path)).name


def _data(facts: CardFacts) -> str:
    made = facts.run.read_environment()
    lines = [f"Trained on `{_plain(Path(facts.settings.data).name)}`: {_count(made.get('train'))}."]
    if made.get("held_out") or facts.settings.stop_below_start:
        held_out = f"{made['held_out']:,}" if made.get("held_out") else "a tenth"
        lines.append(f"Of these, {held_out} were held out of training, to decide when to stop.")
    if made.get("unlabelled"):
        lines.append(f"And without labels: {_count(made['unlabelled'])}.")
    if made.get("test"):
        lines.append(f"Held out for validation, never trained on: {_count(made['test'])}.")
    if facts.classes:
        shown = ", ".join(_plain(name) for name in facts.classes[:20])
        more = f" and {len(facts.classes) - 20} more" if len(facts.classes) > 20 else ""
        lines.append(f"{len(facts.classes)} classes: {shown}{more}.")
    lines.append("The license of these images is not known to dualtemp: look it up before you pass the weights on.")
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
        "Some pixels that Pillow has resized differ from those of training by one or two gray levels of 255; images "
        "of the right size do not differ. Images with transparency or more than 8 bits first need what `decode` "
        "says there.",
    ]
    for name, entry in facts.manifest["formats"].items():
        for title, text, program in export_formats()[name].how_to_load(entry, facts.recipe, facts.how):
            parts += ["", f"### {title}", "", text, "", _python(program)]
    if made := facts.manifest.get("classifier"):
        parts += ["", "### Classify", "", _about_classifier(made), "", _python(how_to_classify(made["file"]))]
    return "\n".join(parts)


def _about_classifier(made: dict[str, Any]) -> str:
    shown = ", ".join(_plain(name) for name in made["classes"][:20]) + (" ..." if len(made["classes"]) > 20 else "")
    tested = "Cross-fitted on these it is right for"
    if "tested" in made:
        tested = f"Tested on {made['tested']:,} others, which its calibration was fitted to, it is right for"
    return (
        f"`{made['file']}` is a linear classifier on the features, learned from {made['images']:,} images of "
        f"{len(made['classes'])} classes ({shown}). {tested} "
        f"{100 * made['accuracy']:.1f} % of them, with a calibration error of {100 * made['ece']:.1f} %. It calls "
        f"{100 * made['unknown_rate']:g} % of such images none of these, and more of others."
    )


def _settings_part(facts: CardFacts) -> str:
    paths = {name: facts.settings.get(name) for name in ("data", "init", "labels_from", "teacher")}
    last = {name: _last_part(path) for name, path in paths.items() if path is not None}
    settings = facts.settings.model_copy(update=last)
    made = facts.run.read_environment()
    versions = ", ".join(
        f"{name} {made[name]}" for name in ("python", "torch", "torchvision", "timm") if made.get(name)
    )
    trained_with = f"\n\nTrained with {versions}." if versions else ""
    return f"## Settings\n\n```yaml\n{to_yaml(settings)}```{trained_with}"


def _limits(facts: CardFacts) -> str:
    lines = [
        "The features carry what the training images have in common with yours, biases included; the figures above "
        "hold for the data that they name. Measure on your own images before you rely on them.",
    ]
    if any(line.get("collapsed") for line in facts.history[-1:]):
        lines.insert(0, "**The features have collapsed: they hardly differ from image to image.**")
    return "\n\n".join(["## Limits", *lines])


def _python(program: str) -> str:
    return f"```python\n{program}\n```"


def _number(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else ""


def _plain(text: str) -> str:
    """Replace what Markdown would interpret: names of folders may hold anything."""
    return " ".join(text.replace("|", "/").replace("`", "'").replace("<", "(").replace(">", ")").split())

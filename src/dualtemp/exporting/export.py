"""Export a run's encoder for use without dualtemp: weights or graph, preprocessing, model card."""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dualtemp import __version__
from dualtemp.config import Settings
from dualtemp.data.loading.loader import evaluation_batches
from dualtemp.encoder.encoder import RunEncoder, names_start, run_encoder
from dualtemp.encoder.feature_records import images_of
from dualtemp.encoder.fine_tuned import fine_tuned
from dualtemp.errors import UserError
from dualtemp.evaluation.classifier import Classifier
from dualtemp.evaluation.classifier_file import CLASSIFIER_FILE, classifier_bytes, kept_classifier
from dualtemp.exporting.export_folder import MANIFEST, locked_folder, put_in_place, refuse_other_content, workshop
from dualtemp.exporting.exported_encoder import ExportedEncoder
from dualtemp.exporting.lookup import export_formats
from dualtemp.exporting.model_card import CardFacts, model_card
from dualtemp.exporting.preprocessing import preprocessing
from dualtemp.exporting.write_format import ExportFailed, refuse_missing_packages, write_and_compare
from dualtemp.file_names import valid_text
from dualtemp.models.backbones import describe_backbone
from dualtemp.renamed import renamed_arguments
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.kept_encoder import kept_history

FOLDER = "export"  # in the run's, unless --out names another
TUNED_FOLDER = "export-fine-tuned"  # for other weights than the run's
PROBE, FINE_TUNED = CLASSIFIERS = ("probe", "fine-tuned")
SAMPLE, FEWEST = 256, 4  # images that calibrate and compare a format
PREPROCESSING, CARD = "preprocessing.json", "README.md"


@renamed_arguments(normalise="normalize")
def export(
    run: Path | str,
    format: str | Sequence[str] = "safetensors",
    out: Path | str | None = None,
    *,
    normalize: bool = False,
    data: Path | str | None = None,
    classifier: str | None = None,
    note: Callable[[str], None] | None = None,
) -> Path:
    """Write a run's encoder in formats that need no dualtemp: what `dualtemp export` does. Returns the folder.

    The folder also gets preprocessing.json, a model card (README.md), export.json, which lists what was written, and
    the run's classifier (classifier.safetensors) if `evaluate` or `predict` has made one of these weights.
    Every format is read back and compared with the run's encoder before it is put in place. Formats of an earlier
    export to the same folder are kept if they hold the same encoder and classifier, and removed if not.

    Args:
        run: the run's folder, or a pretrained start ("imagenet", "timm:NAME", a folder of timm).
        format: "safetensors" (weights and model.py, default), "timm" (a folder for `timm.create_model`), "onnx",
            "torch-export", several of them, or "all" of these that the encoder can be exported in; "onnx-int8" (8 bits)
            and "onnx-web" (for browsers) are asked for by name.
        out: the folder; default RUN/export, or RUN/export-fine-tuned; required for a start, which has no folder.
        normalize: let graphs (onnx, torch-export) take uint8 pixels and normalize them themselves.
        data: images that calibrate onnx-int8, and on which it is compared; default: the run's own.
        classifier: "probe" or "fine-tuned", as `evaluate` keeps them: onnx and onnx-web then give probabilities and
            novelty too, and other formats get it beside them, as classifier.safetensors; "fine-tuned" exports that
            network in the place of the run's encoder.
        note: called with a line about what is being written.

    Example:
        >>> dualtemp.export("runs/mine", format=("timm", "onnx"), out="mine")  # doctest: +SKIP
    """
    path = Path(run)
    if out is None and names_start(path):
        raise UserError(f"{path} has no folder for its export: give one, --out FOLDER")
    if classifier is not None and classifier not in CLASSIFIERS:
        raise UserError(f"no classifier is called {classifier!r}: take {' or '.join(CLASSIFIERS)}")
    out = path / (TUNED_FOLDER if classifier == FINE_TUNED else FOLDER) if out is None else Path(out)
    names = _names(format)
    for name in names:
        refuse_missing_packages(export_formats()[name])
    refuse_other_content(out)
    trained, asked = _with_classifier(run_encoder(path, "cpu"), classifier)
    settings = trained.settings
    assert settings.image_size is not None
    encoder = ExportedEncoder(
        trained.backbone.to(memory_format=torch.contiguous_format),  # pyright: ignore[reportCallIssue]
        describe_backbone(settings.backbone, settings.image_size, trained.channels),
        trained.views,
        normalize,
        _sample_of(trained, data),
        asked,
    )
    names = _possible(names, encoder, asked_for=set(_words(format)))
    if normalize and not any(export_formats()[name].is_graph for name in names):
        graphs = [each.name for each in export_formats().values() if each.is_graph and each.in_all]
        raise UserError(f"normalize is for graphs: give --format {' or '.join(graphs)}, or leave it out")
    if data is not None and not any(export_formats()[name].is_approximate for name in names):
        measured = [each.name for each in export_formats().values() if each.is_approximate]
        raise UserError(f"data is for formats that calibrate: give --format {' or '.join(measured)}, or leave it out")
    how = preprocessing(trained.views)
    if asked is not None and note is not None and not any(export_formats()[name].classifies for name in names):
        carriers = " and ".join(each.name for each in export_formats().values() if each.classifies)
        note(
            f"the classifier is written beside the encoder, as {CLASSIFIER_FILE}, and README.md has a program that "
            f"applies it: of all formats, only {carriers} carry it inside"
        )
    manifest = _facts(RunFolder(path), settings, encoder, how)
    with workshop(out) as fresh:
        written = _write_formats(names, set(_words(format)), encoder, fresh, note or (lambda line: None))
        with locked_folder(out):  # no other export may add a format between reading the list and writing it
            stale = _put_classifier(asked or _kept_classifier(trained), fresh, manifest, out)
            same_classifier = _content(out / CLASSIFIER_FILE) == _content(fresh / CLASSIFIER_FILE)
            others, manifest["formats"] = _merged(out, manifest["weights"], same_classifier, written)
            stale += others
            facts = CardFacts(RunFolder(path), settings, trained.classes, encoder.recipe, how, manifest)
            about, listed = json.dumps(how, indent=2), json.dumps(manifest, indent=2)
            texts = {PREPROCESSING: about + "\n", CARD: model_card(facts), MANIFEST: listed + "\n"}
            for file, text in texts.items():
                (fresh / file).write_text(valid_text(text), encoding="utf-8")  # names of classes may hold any bytes
            put_in_place(fresh, out, stale)
    return out


def _with_classifier(trained: RunEncoder, wanted: str | None) -> tuple[RunEncoder, Classifier | None]:
    """The encoder to export and the classifier that is asked for; a UserError if the run does not keep it."""
    if wanted is None:
        return trained, None
    tuned = fine_tuned(trained) if wanted == FINE_TUNED else None
    if tuned is not None:
        return tuned
    kept = kept_classifier(trained.path, trained.fingerprint) if wanted == PROBE else None
    if kept is None:
        if trained.is_start:
            raise UserError(f"{trained.path} is a start, which keeps no classifier: leave --classifier out")
        measure = "fine-tune" if wanted == FINE_TUNED else "probe"
        raise UserError(
            f"{trained.path} keeps no {wanted} classifier of its present weights: "
            f"`dualtemp evaluate {trained.path} --only {measure}` makes it"
        )
    return trained, kept


def _kept_classifier(trained: RunEncoder) -> Classifier | None:
    """The run's probe of these weights; a damaged one is no part of an encoder."""
    with contextlib.suppress(UserError):
        return kept_classifier(trained.path, trained.fingerprint)
    return None


def _put_classifier(kept: Classifier | None, fresh: Path, manifest: dict[str, Any], out: Path) -> list[str]:
    """Write a classifier of these weights into the fresh folder, if there is one; returns files to be removed."""
    if kept is not None:
        facts = {"data": Path(kept.facts["data"]).name} if "data" in kept.facts else {}  # not where it lay
        (fresh / CLASSIFIER_FILE).write_bytes(classifier_bytes(kept.with_facts(**facts)))
        told = {name: kept.facts[name] for name in ("images", "accuracy", "ece", "unknown_rate")}
        more = {name: kept.facts[name] for name in ("learned_by", "tested", "epochs") if name in kept.facts}
        manifest["classifier"] = {"file": CLASSIFIER_FILE, "classes": list(kept.classes), **told, **more}
        return []
    with contextlib.suppress(OSError, ValueError):
        if "classifier" in json.loads((out / MANIFEST).read_text()):
            return [CLASSIFIER_FILE]  # of an earlier export
    return []


def formats_in(folder: Path) -> dict[str, dict[str, Any]]:
    """The formats in an export folder with their entries in export.json; empty if it is no export."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return {name: entry for name, entry in manifest["formats"].items() if name in export_formats()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _words(format: str | Sequence[str]) -> list[str]:
    return [word.strip() for part in ([format] if isinstance(format, str) else format) for word in part.split(",")]


def _names(format: str | Sequence[str]) -> tuple[str, ...]:
    words = _words(format)
    for word in words:
        if word not in export_formats() and word != "all":
            raise UserError(f"no format is called {word!r}: choose among {', '.join(export_formats())} or all")
    if not words:
        raise UserError(f"no format is given: choose among {', '.join(export_formats())} or all")
    every = [name for name, each in export_formats().items() if each.in_all] if "all" in words else []
    return tuple(dict.fromkeys([*every, *(word for word in words if word != "all")]))


def _possible(names: tuple[str, ...], encoder: ExportedEncoder, asked_for: set[str]) -> tuple[str, ...]:
    """The formats that the encoder can be exported in; a UserError if one that was asked for by name is none."""
    refusals = {name: reason for name in names if (reason := export_formats()[name].refusal(encoder))}
    if named := [name for name in refusals if name in asked_for]:
        name, reason = named[0], refusals[named[0]]
        others = [each for each in export_formats().values() if each.in_all and not each.refusal(encoder)]
        others = [f"{each.name} ({each.hint})" if each.hint else each.name for each in others]
        raise UserError(f"--format {name}: {reason}; take {', '.join(others[:-1])} or {others[-1]}")
    return tuple(name for name in names if name not in refusals)


def _write_formats(
    names: Sequence[str], asked_for: set[str], encoder: ExportedEncoder, fresh: Path, note: Callable[[str], None]
) -> dict[str, Any]:
    """Write each format into the fresh folder, and return their entries for export.json.

    A format that fails is left out if "all" alone asked for it, and is an ExportFailed if its own name did, or if
    nothing else can be written.
    """
    written = {}
    for name in names:
        note(f"{name}: writing it, and comparing its features with the run's")
        format, place = export_formats()[name], fresh / name  # its own folder: two formats share a file's name
        place.mkdir()
        try:
            written[name] = _entry(name, encoder, write_and_compare(format, encoder, place))
        except ExportFailed as failure:
            if name in asked_for or (name == names[-1] and not written):
                raise
            note(f"left out: {failure}")
        else:
            for file in format.files:
                (place / file).replace(fresh / file)
        shutil.rmtree(place)
    return written


def _sample_of(trained: RunEncoder, data: Path | str | None) -> Callable[[], Tensor] | None:
    """A function that reads real images, once, as uint8 pixels; None for a start without images."""
    if data is None and trained.is_start:
        return None

    @cache
    def sample() -> Tensor:
        images = trained.fitted(images_of(trained, data).images)
        some = images.take(np.linspace(0, len(images) - 1, min(len(images), SAMPLE)).astype(int).tolist())
        clean = evaluation_batches(some, trained.views, 64, workers=0, problems={})
        views = [trained.views.unnormalize(batch.pixels).mul(255).round().to(torch.uint8) for batch in clean]
        if sum(map(len, views)) < FEWEST:
            raise UserError(f"onnx-int8 needs at least {FEWEST} images to calibrate and compare with: give --data")
        return torch.cat(views)

    return sample


def _facts(run: RunFolder, settings: Settings, encoder: ExportedEncoder, how: dict[str, Any]) -> dict[str, Any]:
    last = (kept_history(run.history(), settings) or [{}])[-1]
    return {
        "dualtemp": __version__,
        "run": run.path.resolve().name,
        "epoch": last.get("epoch"),
        "step": last.get("step"),
        "weights": _digest(encoder.backbone, how),
        "features": encoder.recipe["num_features"],
    }


def _digest(backbone: nn.Module, how: dict[str, Any]) -> str:
    """Digest everything that determines the features, weights and preprocessing, as 32 hexadecimal digits."""
    digest = hashlib.sha256(json.dumps(how, sort_keys=True).encode())
    for name, value in sorted(backbone.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]


def _entry(name: str, encoder: ExportedEncoder, compared: dict[str, Any]) -> dict[str, Any]:
    format = export_formats()[name]
    return {
        "files": list(format.files),
        "takes": "uint8 pixels" if format.is_graph and encoder.normalizes else "float32, normalised",
        **compared,
        **format.facts,
    }


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _merged(out: Path, weights: str, same_classifier: bool, fresh: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return files of an earlier export with another encoder or classifier, which go, and all formats afterwards."""
    before = formats_in(out)
    same = bool(before) and json.loads((out / MANIFEST).read_text()).get("weights") == weights
    kept = {
        name: entry
        for name, entry in before.items()
        if same
        and (same_classifier or "probability_difference" not in entry)
        and all((out / file).is_file() for file in export_formats()[name].files)
    }
    after = {name: {**kept, **fresh}[name] for name in export_formats() if name in kept or name in fresh}
    files = {file for name in after for file in export_formats()[name].files}
    return [file for name in before for file in export_formats()[name].files if file not in files], after

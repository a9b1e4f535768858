"""Predictions as rows, CSV, JSON, Parquet and a page."""

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

from dualtemp.atomic_write import write_output
from dualtemp.encoder.embedding_file import valid_label
from dualtemp.errors import UserError
from dualtemp.evaluation.calibration import uncertainty
from dualtemp.evaluation.predict import Predicted
from dualtemp.file_names import valid_text
from dualtemp.quantities import counted
from dualtemp.report.picture_groups import Card, Section, write_search_page

ENDINGS = (".csv", ".json", ".html", ".htm", ".parquet")
NONE = "none of these"
SHOWN = 12  # pictures of a class or cluster on a page
SUSPECTS = 100  # on a page
COLUMNS: dict[str, str] = {  # column -> its type in Parquet
    "name": "string",
    "part": "string",
    "label": "string",
    "prediction": "string",
    "best": "string",
    "confidence": "float",
    "uncertainty": "float",
    "novelty": "float",
    "learned_from": "bool",
    "wrong_label_score": "float",
    "suggested": "string",
    "cluster": "int64",
}


def rows_of(found: Predicted) -> list[dict[str, Any]]:
    """One dictionary per image, with the keys of COLUMNS; unknown values are None."""
    rows = [dict.fromkeys(COLUMNS) for _ in found.names]
    for i, row in enumerate(rows):
        row |= {"name": valid_text(found.names[i]), "part": found.parts[i], "label": valid_label(found.labels[i])}
        row["learned_from"] = bool(found.learned[i])
    if found.predictions is not None and found.classifier is not None:
        p, classes = found.predictions, [*map(valid_text, found.classifier.classes), None]
        columns = (p.label, p.best, p.confidence, uncertainty(p.probabilities), p.novelty)
        for row, label, best, confidence, doubt, novelty in zip(
            rows, *(each.tolist() for each in columns), strict=True
        ):
            row |= {"prediction": NONE if label < 0 else classes[label], "best": classes[best]}
            row |= {"confidence": confidence, "uncertainty": doubt, "novelty": novelty}
    if found.wrong is not None:
        columns = (found.labeled, found.wrong.score, found.wrong.suggested, found.wrong.suspected)
        for i, score, suggested, suspected in zip(*(each.tolist() for each in columns), strict=True):
            rows[i] |= {"wrong_label_score": score}
            rows[i] |= {"suggested": valid_text(found.label_names[suggested]) if suspected else None}
    if found.clusters is not None:
        for row, cluster in zip(rows, found.clusters.labels.tolist(), strict=True):
            row["cluster"] = cluster + 1
    return rows


def suspects_of(found: Predicted) -> list[int]:
    """Places in `names` of the suspected labels, the most suspicious first."""
    return [] if found.wrong is None else found.labeled[found.wrong.order].tolist()


def summary_of(found: Predicted) -> dict[str, Any]:
    """Everything except the rows of single images, for JSON."""
    c = found.classifier
    made = None
    if c is not None:
        made = {
            "classes": list(map(valid_text, c.classes)),
            "learned_from": found.learned_from,
            "temperature": c.temperature,
            **c.facts,
        }
    clusters = None
    if found.clusters is not None:
        sizes = found.clusters.sizes.tolist()
        examples = [[found.names[i] for i in found.clusters.examples(at, SHOWN).tolist()] for at in range(len(sizes))]
        clusters = [
            {"cluster": at + 1, "images": size, "examples": list(map(valid_text, shown)), "labels": _labels(found, at)}
            for at, (size, shown) in enumerate(zip(sizes, examples, strict=True))
        ]
    return {
        "images": len(found.names),
        "classifier": made,
        "measured": found.measured,
        "suspected_wrong_labels": [valid_text(found.names[i]) for i in suspects_of(found)],
        "clusters": clusters,
        "unreadable": found.unreadable,
    }


def for_json(found: Predicted) -> dict[str, Any]:
    """Everything, for JSON."""
    return {**summary_of(found), "predictions": rows_of(found)}


def _labels(found: Predicted, cluster: int) -> dict[str, int]:
    """Labels in a cluster, the most frequent first."""
    assert found.clusters is not None
    inside = (found.clusters.labels == cluster).nonzero()[:, 0].tolist()
    return dict(Counter(label for i in inside if (label := valid_label(found.labels[i])) is not None).most_common())


def check_prediction_file(out: Path) -> None:
    """Raise UserError for an unknown ending, or .parquet without pyarrow, before anything is computed."""
    if out.suffix.lower() not in ENDINGS or out.is_dir():
        raise UserError(f"{out}: predictions go into .csv, .json, .html or .parquet files; give such a name")
    if out.suffix.lower() == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise UserError(
                f"{out}: .parquet files need pyarrow: pip install 'dualtemp[parquet]', or take .csv"
            ) from None


def write_predictions(out: Path, run: Path | str, found: Predicted) -> None:
    """Write what was found to FILE.csv, .json, .parquet or .html, atomically."""
    check_prediction_file(out)
    ending = out.suffix.lower()
    if ending in (".html", ".htm"):
        write_predictions_page(out, run, found)
    elif ending == ".json":
        write_output(out, json.dumps(for_json(found), indent=1) + "\n")
    elif ending == ".csv":
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows_of(found))
        write_output(out, text.getvalue())
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema([pa.field(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows_of(found), schema=schema), buffer)
        write_output(out, buffer.getvalue())


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value


def write_predictions_page(out: Path, run: Path | str, found: Predicted) -> None:
    """Write a page: suspected labels, the surest and least sure images of each class, clusters."""
    source = "images" if found.pictures.images is None else found.pictures.images.source
    facts = [("Encoder", str(run)), ("Images", f"{len(found.names):,} of {source}")]
    if found.classifier is not None:
        facts.append(("Learned from", f"{found.learned_from}; {len(found.classifier.classes)} classes"))
    if m := found.measured:
        facts.append(
            (
                "Measured",
                f"right {100 * m['accuracy']:.1f} % of {m['images']:,} labeled images that it did not learn from; "
                f"calibration error {100 * m['ece']:.1f} %",
            )
        )
    sections = [*_suspect_sections(found), *_class_sections(found), *_cluster_sections(found)]
    about = (
        "A linear classifier on the encoder's features. A confidence is a calibrated probability; images far from all "
        "classes are none of these. A label is suspected if neighbors and a classifier that has not seen it both name "
        "another class."
    )
    write_search_page(out, "Predictions", about, facts, sections)


def _card(found: Predicted, i: int, label: str | None, note: str) -> Card:
    name = valid_text(found.names[i])
    return Card(found.pictures.thumbnail(name), name, label, note=note)


def _suspect_sections(found: Predicted) -> list[Section]:
    if found.wrong is None or not len(found.wrong.order):
        return []
    cards = []
    for at in found.wrong.order[:SUSPECTS].tolist():
        i, suggested = int(found.labeled[at]), found.label_names[int(found.wrong.suggested[at])]
        note = f"{suggested}? score {float(found.wrong.score[at]):.3f}"
        cards.append(_card(found, i, f"labeled {found.labels[i]}", note))
    more = f", the first {SUSPECTS} shown" if len(found.wrong.order) > SUSPECTS else ""
    return [Section(f"{counted(len(found.wrong.order), 'suspected wrong label')}{more}", cards)]


def _class_sections(found: Predicted) -> list[Section]:
    p, c = found.predictions, found.classifier
    if p is None or c is None:
        return []
    sections = []
    for label, title in ((-1, NONE), *enumerate(c.classes)):
        places = (p.label == label).nonzero()[:, 0]
        if not len(places):
            continue
        score = p.novelty[places] if label < 0 else -p.confidence[places]
        order = places[score.argsort(descending=label < 0, stable=True)].tolist()
        shown = order if len(order) <= SHOWN else [*order[: SHOWN // 2], *order[-SHOWN // 2 :]]
        cards = [
            _card(
                found, i, c.classes[int(p.best[i])] if label < 0 else title, f"confidence {float(p.confidence[i]):.3f}"
            )
            for i in shown
        ]
        which = "" if len(shown) == len(order) else ": the farthest, then the nearest" if label < 0 else ""
        which = which or (": the surest, then the least sure" if len(shown) < len(order) else "")
        sections.append(Section(f"{title}, {counted(len(order), 'image')}{which}", cards))
    return sections


def _cluster_sections(found: Predicted) -> list[Section]:
    if found.clusters is None:
        return []
    sections = []
    for at, size in enumerate(found.clusters.sizes.tolist()):
        labels = ", ".join(f"{label} {count}" for label, count in list(_labels(found, at).items())[:3])
        cards = [_card(found, i, found.labels[i], "") for i in found.clusters.examples(at, SHOWN).tolist()]
        sections.append(Section(f"Cluster {at + 1}, {counted(size, 'image')}{f': {labels}' if labels else ''}", cards))
    return sections

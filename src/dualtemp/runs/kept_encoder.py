"""Which epoch's encoder a run folder keeps: a worse one never replaces a better one. Needs no torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from dualtemp.config import Settings
from dualtemp.runs.thresholds import clearly_below, clearly_past


def fell_below(metrics: Mapping[str, Any], chosen: Settings) -> bool:
    """Whether an epoch is below the start, and the run should stop for that."""
    return chosen.stop_below_start and clearly_below(metrics)


def went_past(metrics: Mapping[str, Any], chosen: Settings) -> bool:
    """Whether the judge is sure that an earlier encoder was better, and the run should stop for that."""
    return chosen.stop_by_judge and clearly_past(metrics)


def is_measured(metrics: Mapping[str, Any], chosen: Settings) -> bool:
    """Whether an epoch's metrics include all those that can stop this run."""
    by_start = chosen.stop_below_start and "held_out_lost" not in metrics
    by_judge = chosen.stop_by_judge and "judged_past" not in metrics
    return not (by_start or by_judge)


def replaces_encoder(metrics: Mapping[str, Any], chosen: Settings, has_encoder: bool) -> bool:
    """Whether an epoch's encoder replaces the one in the run folder; has_encoder: whether there is one."""
    if fell_below(metrics, chosen) or went_past(metrics, chosen):
        return False
    return is_measured(metrics, chosen) or not has_encoder


def kept_history(history: Sequence[dict[str, Any]], chosen: Settings) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl up to the epoch whose encoder the folder keeps; none if it keeps the start.

    A line without `stopped` was written while the run had no criterion to stop.
    """
    kept, has_encoder = 0, chosen.init is not None
    for count, line in enumerate(history, 1):
        if "stopped" not in line or replaces_encoder(line, chosen, has_encoder):
            kept, has_encoder = count, True
    return list(history[:kept])


def kept_metrics(history: Sequence[dict[str, Any]], chosen: Settings) -> dict[str, Any]:
    """Return the metrics of the encoder that the folder keeps; if it is the start, its kNN, if that was measured."""
    if kept := kept_history(history, chosen):
        return kept[-1]
    measured = [line["start_knn_top1"] for line in history if "start_knn_top1" in line]
    return {"knn_top1": measured[-1]} if measured else {}

"""Thresholds that measurements and pages share: collapse, the hardest tenth, a fall below the start, a sure judge.

Needs no torch.
"""

import math
from collections.abc import Mapping
from typing import Any

# Feature spread below which all images look the same to the encoder. Isotropic features have 1; measured: untrained
# encoders 0.06 (resnet50) to 0.7, transformers that collapse 0.005 to 0.016.
COLLAPSED = 0.02
SURE = 0.8  # chance from which advice is given without "perhaps", and `stop_by_judge` stops a run
CLEAR = 1.645  # standard errors: by chance alone, a run falls this far below its start once in 20 times


def hardest_tenth(anchors: int) -> int:
    """Number of anchors in the hardest tenth of a step, rounded up."""
    return -(-anchors // 10)


def clearly_below(metrics: Mapping[str, Any]) -> bool:
    """Whether an epoch's metrics show more held-out images lost than gained since the start, beyond chance."""
    gained, lost = metrics.get("held_out_gained"), metrics.get("held_out_lost")
    if gained is None or lost is None or lost <= gained:
        return False
    return lost - gained > CLEAR * math.sqrt(gained + lost)


def clearly_past(metrics: Mapping[str, Any]) -> bool:
    """Whether the judge is sure that an earlier encoder was better."""
    return metrics.get("judged_past", 0.0) >= SURE

"""The encoder of a run, or of a pretrained start, ready for any images: where commands find it."""

from dualtemp.training.run_encoder import (
    RunEncoder,
    names_start,
    open_run,
    run_encoder,
    weights_fingerprint,
    with_weights,
)

__all__ = ["RunEncoder", "names_start", "open_run", "run_encoder", "weights_fingerprint", "with_weights"]

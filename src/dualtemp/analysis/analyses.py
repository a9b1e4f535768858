"""The analyses by name, and the options that each takes. Needs no torch."""

from collections.abc import Sequence

from dualtemp.errors import UserError
from dualtemp.temperatures import LEAST_TAU
from dualtemp.text import suggest

ANALYSES = {
    "entropy": "entropy of r_+ by number of keys and temperature (fig:entropy)",
    "similarity": "similarity of r_+ when all keys are drawn anew (fig:abg_similarity)",
    "dictionary": "what the scalar and the vector each lose with fewer keys",
    "neighbours": "which images lie near each other, and whether their labels agree",
}


def check_asked(
    what: str, taus: Sequence[float | str] | None, sizes: Sequence[int | str] | None, images: int | None
) -> None:
    """Raise UserError for an unknown analysis, an option that it does not take, or an invalid value."""
    if what not in ANALYSES:
        raise UserError(f"no analysis is called {what!r}: {suggest(what, ANALYSES)}")
    foreign = {"taus": taus, "sizes": sizes} if what == "neighbours" else {"images": images}
    for name, value in foreign.items():
        if value is not None:
            raise UserError(f"--{name} does not apply to {what}: leave it out")
    for tau in taus or ():
        if isinstance(tau, str) or not tau >= LEAST_TAU:
            raise UserError(f"--taus: a number from {LEAST_TAU:g} on, or inf, is expected, got {tau!r}")
    for size in sizes or ():
        if isinstance(size, str) or size < 1:
            raise UserError(f"--sizes: whole numbers from 1 on are expected, got {size!r}")
    if images is not None and images < 2:
        raise UserError(f"--images must be at least 2, got {images}")

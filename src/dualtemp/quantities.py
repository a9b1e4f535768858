"""Counts, durations and sizes in words."""

from dualtemp.errors import UserError

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def counted(number: int, what: str) -> str:
    """1 image, 2,000 images."""
    return f"{number:,} {what}" + "s" * (number != 1)


def duration(seconds: float) -> str:
    """3 s, 2 min, 1 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def size(number: int) -> str:
    """512 bytes, 3.2 MB, 1.4 GB."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= (0.9995 * factor if unit != "kB" else factor):  # 999.6 kB is shown as 1.0 MB, not 1000 kB
            return f"{number / factor:.{0 if number >= 99.95 * factor else 1}f} {unit}"
    return counted(number, "byte")


def bytes_of(text: str) -> int:
    """Read a size: 256MB, 1GiB, 500000."""
    number, unit = text.strip(), ""
    while number and not number[-1].isdigit():
        number, unit = number[:-1], number[-1] + unit
    try:
        found = round(float(number) * _UNITS[unit.strip().lower()])
    except (ValueError, KeyError, OverflowError):
        raise UserError(f"a size of {text!r}: give a number with MB or GB, such as 256MB") from None
    if found < 1:
        raise UserError(f"a size of {text!r}: give at least one byte, such as 256MB")
    return found

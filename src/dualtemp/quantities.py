"""Counts and durations in words."""


def counted(number: int, what: str) -> str:
    """1 image, 2,000 images."""
    return f"{number:,} {what}" + "s" * (number != 1)


def duration(seconds: float) -> str:
    """3 s, 2 min, 1 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"

"""Names of files, which may hold any bytes, as text."""


def valid_text(name: str) -> str:
    """Make a file's name valid text, which every format can hold, by escaping other bytes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")

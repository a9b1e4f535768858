"""Read a YAML file that a user has written."""

from pathlib import Path
from typing import Any

import yaml

from dualtemp.errors import UserError


def read_yaml(path: Path, expected: str) -> Any:
    """Return the content of a YAML file; if it cannot be read or is no YAML, a UserError says what is expected."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): give {expected}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # such as a date in a month 13
        raise UserError(f"{path} is not YAML ({str(error).splitlines()[0]}): give {expected}") from None

"""Read a YAML file that a user has written."""

from pathlib import Path
from typing import Any

import yaml

from dualtemp.errors import UserError


class UniqueKeys(yaml.SafeLoader):
    """Refuses a mapping that names a key twice, of which YAML would keep the last without a word."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping as it is written, before `<<` has merged others into it."""
        node = super().compose_mapping_node(anchor)
        named: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in named:
                    raise ValueError(f"'{key.value}' is given twice, line {key.start_mark.line + 1}")
                named.add((key.tag, key.value))
        return node


def read_yaml(path: Path, expected: str) -> Any:
    """Return the content of a YAML file; if it cannot be read or is no YAML, a UserError says what is expected."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), UniqueKeys)  # noqa: S506: it is a safe loader
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): give {expected}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # such as a date in a month 13
        raise UserError(f"{path} is not YAML ({str(error).splitlines()[0]}): give {expected}") from None

"""Read a YAML file that a user has written."""

from pathlib import Path
from typing import Any

import yaml

from dualtemp.errors import UserError

MERGE = "tag:yaml.org,2002:merge"


class UniqueKeys(yaml.SafeLoader):
    """Refuses a mapping that names a key twice; YAML would silently keep the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping as written, before `<<` merges others into it."""
        node = super().compose_mapping_node(anchor)
        named: set[Any] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
                value = self.construct_object(key)  # 0.1 and 0.10 are one key
                if value in named:
                    raise ValueError(f"'{key.value}' is given twice, line {key.start_mark.line + 1}")
                named.add(value)
        return node


def read_yaml(path: Path, expected: str) -> Any:
    """Return the content of a YAML file; if it cannot be read or is no YAML, a UserError says what is expected."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), UniqueKeys)  # noqa: S506: it is a safe loader
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): give {expected}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # such as a date in a month 13
        raise UserError(f"{path} is not YAML ({str(error).splitlines()[0]}): give {expected}") from None

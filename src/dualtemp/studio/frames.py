"""Binary frames of numbers for the page: a JSON head, then arrays one after the other.

Layout: uint32 length of the head, the head padded with spaces to a multiple of 8, the arrays; all little-endian.
"""

import json
from typing import Any

import numpy as np


def pack(head: dict[str, Any], *arrays: np.ndarray) -> bytes:
    """Pack arrays and a head that describes them."""
    text = json.dumps(head).encode()
    text += b" " * (-(len(text) + 4) % 8)
    parts = [len(text).to_bytes(4, "little"), text]
    for array in arrays:
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        parts += [data, bytes(-len(data) % 8)]
    return b"".join(parts)

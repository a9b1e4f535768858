"""For mkdocstrings: "Example:" in a docstring is a block of Python, as "Examples:" is in Google's style."""

import re
from typing import Any

import griffe


class DocstringExamples(griffe.Extension):
    """Rename the section before docstrings are parsed, and leave out notes to doctest."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"  # doctest: .*$", "", text, flags=re.MULTILINE)

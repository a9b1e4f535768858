"""What mkdocs.yml adds to the pages of docs/: those at the root of the repository, and the interactive explorer."""

import logging
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
AT_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
EXPLORER = "explore-digits.html"
SHOWN = f"""
<iframe src="{EXPLORER}" title="The explorer of a run on digits" width="100%" height="900" loading="lazy"
  style="border: 1px solid #8884; border-radius: 6px"></iframe>

[The same page on its own]({EXPLORER}){{ .md-button }}
"""
log = logging.getLogger("mkdocs.hooks.site")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root, with links as from docs/, and the explorer."""
    for source, page in AT_ROOT.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=_links_to_root(text, "](")))
    explorer = ROOT / config["extra"]["explorer"]
    if explorer.is_file():
        files.append(File.generated(config, EXPLORER, abs_src_path=str(explorer)))
    else:
        log.warning(f"{explorer} is missing: `make docs` makes it")
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Show the explorer where a page asks for it, and point links out of docs/ to the pages that `on_files` adds."""
    return _links_to_root(markdown, "](../").replace("<!-- explorer -->", SHOWN)


def _links_to_root(text: str, before: str) -> str:
    for source, page in AT_ROOT.items():
        text = text.replace(f"{before}{source}", f"]({page}")
    return text

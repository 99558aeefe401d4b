"""A hook of MkDocs: links from docs/ to files outside of it lead to the repository's web pages.

In the repository such links are relative, so that they work in a checkout and on GitHub. The site
holds docs/ alone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Returns the page's text with links out of docs/ made absolute.

    Raises:
        FileNotFoundError: a link leads to a file that does not exist; the build fails.
    """
    folder = (Path(config["docs_dir"]) / page.file.src_uri).parent

    def absolute(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / match[1]))
        if target.is_relative_to(config["docs_dir"]) and not _is_left_out(target):
            return match[0]
        if not target.exists():
            raise FileNotFoundError(f"{page.file.src_uri}: {match[1]}")
        kind = "tree" if target.is_dir() else "blob"
        path = target.relative_to(ROOT).as_posix()
        return f"]({config['repo_url'].rstrip('/')}/{kind}/main/{path}{match[2] or ''})"

    return _LINK.sub(absolute, markdown)


def _is_left_out(target: Path) -> bool:
    return target.suffix in {".json", ".jsonl"} or target.is_dir()

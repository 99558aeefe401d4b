"""The pages of a gateway: the console and the description of the API.

`console/` here is built from the folder `console/` of the repository and shipped as it is.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request, Response

_FOLDER = Path(__file__).parent
_CONSOLE = _FOLDER / "console"

# Paths of the pages beside the console.
_PATHS = {"/docs": "docs.html", "/pages/docs.js": "docs.js", "/pages/style.css": "style.css"}

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# Pages hold no script of others and load nothing from elsewhere. Pictures may be written within
# the style sheet, as those of the map's library are.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; "
    "object-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

# The names of built files change with what they hold.
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_FRESH = {"Cache-Control": "no-cache"}

# Smaller ones are sent as they are.
_PACKED_BYTES_MIN = 1_024


def all_pages() -> dict[str, Callable[..., Any]]:
    """Returns a handler for the path of each page and of each file that pages load."""
    found = {path: _page(_FOLDER / name, _FRESH) for path, name in _PATHS.items()}
    found["/"] = _page(_CONSOLE / "index.html", _FRESH)
    for file in sorted(_CONSOLE.rglob("*")):
        if file.is_file() and file.suffix in _MEDIA_TYPES:
            name = file.relative_to(_CONSOLE).as_posix()
            is_named_by_content = name.startswith("assets/")
            found[f"/console/{name}"] = _page(file, _FOR_EVER if is_named_by_content else _FRESH)
    return found


def _page(file: Path, caching: dict[str, str]) -> Callable[..., Any]:
    content = file.read_bytes()
    media_type = _MEDIA_TYPES[file.suffix]

    @cache
    def packed() -> bytes:
        # At the first request: a gateway starts often, and few of them show the console.
        return gzip.compress(content, 6, mtime=0)

    async def page(request: Request) -> Response:
        headers = {**_HEADERS, **caching, "Vary": "Accept-Encoding"}
        takes_packed = "gzip" in request.headers.get("accept-encoding", "")
        if takes_packed and len(content) >= _PACKED_BYTES_MIN:
            return Response(packed(), 200, {**headers, "Content-Encoding": "gzip"}, media_type)
        return Response(content, 200, headers, media_type)

    return page

"""Which extras of the package are installed."""

from __future__ import annotations

from importlib.util import find_spec

# What a gateway needs beside the engine: the extra `gateway` of the package.
_GATEWAY = ("fastapi", "uvicorn", "httptools", "websockets")


def has_gateway() -> bool:
    """Whether a gateway can run here."""
    return all(find_spec(name) is not None for name in _GATEWAY)

"""Libraries that few callers need, imported at their first use.

They are extras of the client: most clients send rectangles and circles and read objects one by one,
and a sensor's gateway need not install a geometry library for that.
"""

from __future__ import annotations

import importlib
from typing import Any

from sirocco_client.errors import FailedPrecondition


def load(library: str, field: str | None = None, *, extra: str = "geo") -> Any:
    """Returns a library of an extra.

    Raises:
        FailedPrecondition: It is not installed; `field` is the member that needs it.
    """
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise FailedPrecondition(
            f"needs the library {library} ({error}): pip install 'sirocco-client[{extra}]'",
            field=field,
        ) from None

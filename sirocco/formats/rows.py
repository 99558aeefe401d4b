"""What a reader of any format yields for each object."""

from __future__ import annotations

from typing import Any, TypeAlias

from sirocco.model.errors import InvalidArgument

# The line on which it begins, from 1, and the members of the object, or why there is none.
Row: TypeAlias = "tuple[int, dict[str, Any] | InvalidArgument]"

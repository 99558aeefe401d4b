"""Reads the request of a call that has a single one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from sirocco.model.errors import DeadlineExceeded, InvalidArgument


async def only_request(
    raws: AsyncIterator[bytes], within_s: float, path: str, count_refused: Callable[[str], None]
) -> bytes:
    """Returns the bytes of the request.

    Args:
        raws: of the call.
        within_s: how long it may take to arrive; clients send it with the call.
        path: of the method.
        count_refused: called with `late` if there is none.

    Raises:
        DeadlineExceeded: It did not arrive in time.
        InvalidArgument: The call ended without one.
    """
    # Closed here: the loop would close an iterator that is left, in a task of its own.
    async with aclosing(aiter(raws)) as each:  # type: ignore[type-var]
        try:
            async with asyncio.timeout(within_s):
                data = await anext(each, None)
        except TimeoutError:
            count_refused("late")
            raise DeadlineExceeded("the request did not arrive in time") from None
    if data is None:
        count_refused("late")
        raise InvalidArgument(f"a call of {path} without a request")
    return data

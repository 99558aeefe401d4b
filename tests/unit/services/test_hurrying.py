"""Having routers hurry: whom a merger is connected to for it."""

from __future__ import annotations

import asyncio

from services.merger.hurrying import Hurrying
from services.merger.members import Members
from sirocco.protocol.control import ControlView, Ownership
from sirocco.protocol.messages import INTAKE
from sirocco.runtime.membership import MemberInfo
from sirocco.transport.memory_map_store import MemoryMapStore


def test_nothing_is_left_open_to_owners_that_are_gone() -> None:
    async def run() -> list[str]:
        store, view = MemoryMapStore(), ControlView()
        hurrying = Hurrying(view, Members(store))
        # Nobody answers at any of them; that a channel was opened is all that counts.
        for number in range(3):
            name, address = f"router-{number}", f"127.0.0.1:{number + 1}"
            store.put(f"member/{name}", MemberInfo(name, "router", address, "", 0).form())
            if number:
                store.delete(f"member/router-{number - 1}")
            view.owners[INTAKE, 0] = Ownership(name, 1)
            asking = asyncio.create_task(hurrying.hurry("0.7"))
            while address not in hurrying._channels._channels:
                await asyncio.sleep(0.01)
            asking.cancel()
        found = sorted(hurrying._channels._channels)
        await hurrying.close()
        return found

    assert asyncio.run(run()) == ["127.0.0.1:3"]

"""What a report learns of a cluster, by the rights of its token."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sirocco_client import PermissionDenied

from sirocco.explain.cluster_state import read_cluster


def test_a_tenant_gets_a_report_without_leaves() -> None:
    """Routers refuse leaves to tenants: their reports were refused as a whole."""

    def describe(*, leaves: bool = False) -> Any:
        if leaves:
            raise PermissionDenied("leaves are shown only to tokens without a tenant")
        return SimpleNamespace(members=("router",))

    client: Any = SimpleNamespace(describe=describe)
    found = read_cluster(client)
    assert found.described.members == ("router",)
    assert (found.map, found.balance) == (None, None)
    assert "leaves are shown only" in found.why

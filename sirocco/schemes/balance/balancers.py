"""The balancer of each scheme."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sirocco.schemes.balance.base.view import Balancer
from sirocco.schemes.balance.ps2stream.balancer import Ps2Stream
from sirocco.schemes.balance.sstd.balancer import Sstd
from sirocco.schemes.balance.swarm.balancer import Swarm
from sirocco.schemes.balance.tornado.balancer import Tornado

# Scheme → balancer; the other schemes are the papers' static baselines.
BALANCERS: Mapping[str, Balancer] = MappingProxyType(
    {"qt-tree": Sstd(), "a-grid": Tornado(), "swarm": Swarm(), "kdt-tree": Ps2Stream()}
)


def balancer_of(scheme: str) -> Balancer | None:
    """Returns the balancer of a scheme; None if its maps never change."""
    return BALANCERS.get(scheme)


# Schemes whose balancers need a sample of objects and queries.
SAMPLED = frozenset({"qt-tree", "kdt-tree"})

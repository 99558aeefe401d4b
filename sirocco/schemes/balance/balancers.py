"""Which balancer goes with which scheme."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.balance import sstd, swarm, tornado
from sirocco.schemes.balance.ps2stream import Ps2Stream
from sirocco.schemes.balance.sstd import Sstd
from sirocco.schemes.balance.swarm import Swarm
from sirocco.schemes.balance.tornado import Tornado
from sirocco.schemes.balance.view import Balancer, LeafLoads

# Scheme → balancer; the other schemes are the papers' static baselines.
BALANCERS: Mapping[str, Balancer] = MappingProxyType(
    {"qt-tree": Sstd(), "a-grid": Tornado(), "swarm": Swarm(), "kdt-tree": Ps2Stream()}
)


def balancer_of(scheme: str) -> Balancer | None:
    """Returns the balancer of a scheme; None where its maps stay as they are."""
    return BALANCERS.get(scheme)


# Schemes whose balancers ask for a sample of objects and queries.
SAMPLED = frozenset({"qt-tree", "kdt-tree"})


def leaf_costs(scheme: str, loads: LeafLoads) -> NDArray[np.float64]:
    """Returns the cost of each leaf as the scheme's paper has it, f8[leaves].

    For schemes without a cost of measured loads, and for PS2Stream's, whose constants depend on
    all queries: what objects meet and their handling (Tornado).
    """
    of = {"qt-tree": sstd.workloads, "swarm": swarm.costs}.get(scheme, tornado.workloads)
    return of(loads)

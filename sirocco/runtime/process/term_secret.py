"""The secret under which all evaluators of a cluster number terms (docs/adr/0030).

The first evaluator draws it; the others find it in the map store. It is a lease whose holder is the
secret. Every process that knows it renews it, so it lasts as long as any evaluator, and running
evaluators write it again if the store is lost. Nothing durable depends on it.
"""

from __future__ import annotations

import secrets
from contextlib import suppress

from sirocco.model.term_hashing import SECRET_BYTES, TermHashing
from sirocco.transport.map_store import MapStore

__all__ = ["SECRET_LEASE", "SharedTerms"]

SECRET_LEASE = "lease/term-secret"

# Longer than any outage of all evaluators that an operator tolerates. Two secrets in one cluster
# only make searches for frequent terms slow: terms are then sent as text.
SECRET_MS = 3_600_000


class SharedTerms:
    """How the evaluators of a cluster number terms.

    Attributes:
        hashing: the same for the life of this process.
    """

    def __init__(self, store: MapStore) -> None:
        """Finds the secret of the cluster, or draws it.

        Raises:
            Unavailable: The store does not answer.
        """
        self._store = store
        drawn = TermHashing(secrets.token_hex(SECRET_BYTES))
        if not store.acquire(SECRET_LEASE, drawn.secret, SECRET_MS):
            found = store.holders(SECRET_LEASE).get(SECRET_LEASE)
            # None: it has just expired, and this process continues with a secret of its own. So it
            # does where something else stands in the store: nobody renews that, so that it expires.
            with suppress(ValueError):
                drawn = drawn if found is None else TermHashing(found)
        self.hashing = drawn

    def keep(self) -> None:
        """Renews the secret in the store, if that has it or none.

        Raises:
            Unavailable: The store does not answer.
        """
        self._store.acquire(SECRET_LEASE, self.hashing.secret, SECRET_MS)

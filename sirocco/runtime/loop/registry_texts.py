"""Definitions of queries for slots whose state an earlier analysis of texts made."""

from __future__ import annotations

import threading

from sirocco.model.query import Query
from sirocco.protocol.contract.messages import REGISTRY
from sirocco.protocol.contract.query_words import (
    Definitions,
    definition_key,
    may_read_otherwise,
)
from sirocco.runtime.loop.registry_reader import read_changes
from sirocco.transport.log import Log


class RegistryTexts:
    """Reads the registry once for all slots of a process; any thread may call."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._ends: dict[int, int] = {}
        # Versions in the compacted log whose text may be read otherwise.
        self._found: dict[tuple[int, int], Query] = {}

    def read(self) -> Definitions:
        """Returns the definitions up to now; blocks.

        Raises:
            Unavailable: The log does not return what it has.
        """
        with self._lock:
            for partition in range(self._log.partitions(REGISTRY)):
                _, end = self._log.bounds(REGISTRY, partition)
                begin = self._ends.get(partition, 0)
                for offset, change in read_changes(self._log, partition, begin, end):
                    query = change.query
                    if query is not None and may_read_otherwise(query):
                        self._found[definition_key(offset, change)] = query
                self._ends[partition] = end
            return self._found

"""The log of the tested loops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sirocco.runtime.settings import ClusterSettings
from sirocco.transport.memory_log import MemoryLog


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    made = MemoryLog()
    made.create_topics(ClusterSettings(slots=2).topics())
    yield made
    made.close()

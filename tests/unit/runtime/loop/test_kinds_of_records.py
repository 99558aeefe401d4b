"""Every kind of message is understood by all readers of its topic."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.codec.hops import HOPS
from sirocco.protocol.contract.messages import DEAD_LETTERS
from sirocco.runtime.loop.hops import DeadLetter, HopReader, HopWriter
from sirocco.transport.log import TopicSpec
from sirocco.transport.memory_log import MemoryLog
from tests.support.random_messages import MAKERS


@pytest.mark.parametrize("kind", HOPS, ids=lambda kind: kind.__name__)
def test_what_is_appended_is_read_on_its_own_topic_alone(kind: type) -> None:
    topic, other = HOPS[kind].topic, DEAD_LETTERS
    log = MemoryLog()
    log.create_topics([TopicSpec(each, 1) for each in (topic, other)])
    writer = HopWriter(log.producer("test"), lambda *_: None)
    rejected: list[DeadLetter] = []
    reader = HopReader(rejected.append)
    message = MAKERS[kind](np.random.default_rng(5), 3)
    for each in (topic, other):
        writer.append(each, 0, message, 0)
    consumer = log.consumer("test")
    consumer.assign({(topic, 0): 0, (other, 0): 0})
    entries = reader.entries(consumer.poll(10, 1.0))
    assert [type(entry.message) for entry in entries if entry.topic == topic] == [kind]
    # A map may be void for reasons of its own as well.
    assert other in {letter.topic for letter in rejected}
    assert other not in {entry.topic for entry in entries}

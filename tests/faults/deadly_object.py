"""An object that ends every evaluator that takes it, under load."""

from __future__ import annotations

import time

from sirocco.codec.hops import HOPS, read_record
from sirocco.protocol.contract.messages import SLOTS, Routed
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaSettings
from tests.faults.catalogue import Seen
from tests.faults.deadly.sitecustomize import WORD
from tests.faults.load import Load
from tests.faults.poison import read_letters
from tests.faults.rig import Rig

# Half a dozen evaluators end, some seconds apart.
FOUND_S = 600.0


def publish_deadly(rig: Rig, load: Load) -> Seen:
    """Waits until the object is in `dead-letters`, and everything else continues."""
    starts = rig.times_logged("listening")
    begin_s = time.monotonic()
    publisher = load.client.publisher()
    publisher.publish({"id": "deadly", "lon": 1.0, "lat": 1.0, "text": WORD.decode()})
    publisher.flush(FOUND_S)
    prefix = f"{rig.cluster.settings.cluster}."
    log = KafkaLog(KafkaSettings(bootstrap=rig.kafka.address, topic_prefix=prefix))
    try:
        while not (aside := set_aside(log)):
            if time.monotonic() - begin_s > FOUND_S:
                raise TimeoutError(f"not in dead-letters after {FOUND_S:.0f} s")
            load.run(0.2)
    finally:
        log.close()
    found_s = time.monotonic() - begin_s
    load.progress()
    resumed_s = time.monotonic() - begin_s
    rig.await_ready()
    load.forgive(aside)
    ended = rig.times_logged("listening") - starts
    note = (
        f"in `dead-letters` after {found_s:.0f} s, with {len(aside) - 1} that shared its record; "
        f"{ended} evaluators ended"
    )
    return Seen(resumed_s, note, ended > 0)


def set_aside(log: KafkaLog) -> set[int]:
    """Returns the ids of objects in records of slots that went to `dead-letters`."""
    ids: set[int] = set()
    for headers, value in read_letters(log):
        if headers["topic"].decode() == SLOTS and b"ended while processing it" in headers["reason"]:
            routed = read_record(HOPS[Routed].method_path, value)
            assert isinstance(routed, Routed)
            ids |= set(routed.objects.ids.tolist())
    return ids

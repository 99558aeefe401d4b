"""Fetches the jars of the Kafka broker; with `--present`, tells by its status if they are here."""

from __future__ import annotations

import sys

from sirocco.local.kafka import CACHE, fetch_kafka, kafka_version
from sirocco.local.process import LocalError

if "--present" in sys.argv[1:]:
    sys.exit(not (CACHE / f"kafka-{kafka_version()}").is_dir())
try:
    fetch_kafka()
except LocalError as error:
    sys.exit(f"error: {error}")

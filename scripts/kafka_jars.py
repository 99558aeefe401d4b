"""Fetches the jars of the Kafka broker into `.cache/kafka-VERSION`.

With `--present` its status says whether they are here, with `--version` it prints the version.
"""

from __future__ import annotations

import sys

from sirocco.local.kafka import CACHE, fetch_kafka, kafka_version
from sirocco.local.process import LocalError

if "--version" in sys.argv[1:]:
    print(kafka_version())
    sys.exit()
if "--present" in sys.argv[1:]:
    sys.exit(not (CACHE / f"kafka-{kafka_version()}").is_dir())
try:
    fetch_kafka()
except LocalError as error:
    sys.exit(f"error: {error}")

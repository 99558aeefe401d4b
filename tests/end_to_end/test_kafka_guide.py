"""The guide "From Kafka to Kafka" can be pasted, and does what it says."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from sirocco.local.kafka import KafkaServer
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.end_to_end.test_webhook_guide import ROOT, pasted
from tests.support.waiting import eventually

GUIDE = ROOT / "docs" / "guides" / "from-kafka-to-kafka.md"


def test_the_guide_can_be_pasted(kafka_server: KafkaServer, tmp_path: Path) -> None:
    (script,) = re.findall(r"```bash\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    first, _, rest = script.partition("\n")
    assert first.startswith("export KAFKA=")
    script = f"export KAFKA={kafka_server.address}\n{rest}"
    out = tmp_path / "out"
    with EmbeddedCluster(ClusterSettings(cluster="guide", slots=2, leaves=4)) as cluster:
        shell = pasted(tmp_path, cluster.router_address, script)
        try:
            eventually(
                lambda: len(re.findall(r"^alerts .*coffee no\. \d", out.read_text(), re.M)) == 3,
                "three alerts",
            )
            eventually(
                lambda: re.search(r"^orders-dead no JSON .*b'decode'", out.read_text(), re.M),
                "a dead letter",
            )
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait(120.0)
            print(out.read_text())

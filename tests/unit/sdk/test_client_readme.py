"""The examples of the client's README, run as shown on a whole cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster

README = Path(__file__).resolve().parents[3] / "sdk" / "README.md"

EXPECTED = """\
fire-near-paris 17 Fire in the old mill
['best-coffee', 'nearest-fires', 'talk-of-the-hour']
1 named lat: must be in [-90, 90]
PublishResult(acknowledged=10001, rejected=1, position_token='…')
fire-near-paris b
[18]
18 small fire, no drill 0.0
fire-near-paris c
"""


def test_the_examples_print_their_output(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ClusterSettings(
        cluster="readme",
        slots=4,
        leaves=8,
        intake_partitions=2,
        registry_partitions=2,
        partials_partitions=2,
    )
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(examples) == 6
    with EmbeddedCluster(settings) as cluster:
        names: dict[str, object] = {"ROUTER": cluster.router_address, "__name__": "readme"}
        for example in examples:
            exec(compile(example, str(README), "exec"), names)
    output = capsys.readouterr().out
    assert re.sub(r"position_token='[^']*'", "position_token='…'", output) == EXPECTED

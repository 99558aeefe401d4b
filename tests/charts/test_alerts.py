"""The alerts as the chart renders them: they fire when they should, and name the remedy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.charts.rendering import CHART, OBSERVED, ROOT, Manifest, needs_helm, of_kind, render

ALERTS = CHART / "rules" / "alerts.yaml"
TESTS = Path(__file__).with_name("rules") / "alerts_test.yaml"
RUNBOOKS = "https://wiki.example.org/runbooks"
UNPACKED = ROOT / ".cache" / "prometheus" / "usr" / "bin"
PROMTOOL = shutil.which("promtool", path=f"{UNPACKED}{os.pathsep}{os.environ['PATH']}")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="Prometheus is missing: scripts/setup.sh helm"
)


def rules(groups: list[Manifest]) -> list[Manifest]:
    return [rule for group in groups for rule in group["rules"]]


def declared() -> list[Manifest]:
    return rules(yaml.safe_load(ALERTS.read_text())["groups"])


def promtool(*arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    command = [PROMTOOL, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def rendered() -> Manifest:
    found = render(OBSERVED, f'monitoring.rules.runbooks="{RUNBOOKS}"')
    [rule] = of_kind(found, "PrometheusRule").values()
    spec: Manifest = rule["spec"]
    return spec


@needs_promtool
@needs_helm
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    text = yaml.safe_dump(rendered()).replace('namespace="default"', 'namespace="geo"')
    (tmp_path / "alerts.yaml").write_text(text)
    shutil.copy(TESTS, tmp_path)
    done = promtool("check", "rules", "alerts.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = promtool("test", "rules", TESTS.name, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_tested_both_ways() -> None:
    fired: set[str] = set()
    silent: set[str] = set()
    for test in yaml.safe_load(TESTS.read_text())["tests"]:
        for one in test.get("alert_rule_test", ()):
            (fired if one.get("exp_alerts") else silent).add(one["alertname"])
    names = {rule["alert"] for rule in declared()}
    assert fired == names
    assert silent == names


def test_each_alert_leads_to_its_runbook() -> None:
    headings = set(
        re.findall(r"^## (\w+)$", (ROOT / "docs" / "guides" / "runbooks.md").read_text(), re.M)
    )
    assert headings == {rule["alert"] for rule in declared()}
    for rule in declared():
        address = rule["annotations"]["runbook_url"]
        assert address == f"docs/guides/runbooks.md#{rule['alert'].lower()}"
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert rule["labels"]["severity"] in {"warning", "critical"}


@needs_helm
def test_rules_are_those_of_the_release() -> None:
    found = rules(rendered()["groups"])
    assert len(found) == len(declared())
    for rule in found:
        assert 'namespace=~".+"' not in rule["expr"]
        assert 'namespace="default"' in rule["expr"]
        assert rule["annotations"]["runbook_url"].startswith(f"{RUNBOOKS}#")

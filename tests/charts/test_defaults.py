"""The chart's values and options of commands have the defaults of the services' settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from scripts.reference import read_settings
from sirocco.cli.__main__ import whole_parser
from sirocco.cli.local.command import _OPTIONS
from sirocco.model.durations import format_duration
from sirocco.runtime.settings import (
    ARRIVAL_SKEW_MAX_MS,
    DEFAULTS,
    ProcessSettings,
    from_environment,
)
from tests.charts.rendering import CHART

NEEDED = {"SIROCCO_KAFKA": "k:9092", "SIROCCO_REDIS": "redis://r", "SIROCCO_ARCHIVE": "/a"}

# Where the chart's default differs from that of a process without settings, and why.
OF_A_CLUSTER = {
    # Two routers and two mergers, with room for as many again.
    "partitions.intake": 8,
    "partitions.partials": 4,
    # Half of an evaluator's memory limit, which the chart sets.
    "storeBytes": 2 << 30,
}


def defaults() -> dict[str, Any]:
    """Path below `cluster` in the chart's values → the services' default."""
    cluster = DEFAULTS
    return {
        "name": cluster.cluster,
        "scheme": cluster.scheme,
        "arrival": "event" if cluster.event_time else "wall",
        "store": cluster.store,
        "slots": cluster.slots,
        "leaves": cluster.leaves,
        "partitions.intake": cluster.intake_partitions,
        "partitions.registry": cluster.registry_partitions,
        "partitions.partials": cluster.partials_partitions,
        "retainedBytes": cluster.retained_bytes_max,
        "retention": format_duration(cluster.retention_ms or 0),
        "archiveRetention": format_duration(cluster.archive_ms or 0),
        "storeBytes": cluster.store_bytes_max,
        "balance.enabled": cluster.balances,
        "balance.interval": format_duration(cluster.balance_interval_ms),
        "balance.cooldown": format_duration(cluster.balance_cooldown_ms),
        "balance.objects": cluster.balance_objects_min,
        "balance.threshold": cluster.balance_threshold,
        "reflection": cluster.reflection,
        "arrivalSkewMax": format_duration(ARRIVAL_SKEW_MAX_MS),
        "stepBytes": cluster.step_bytes_max,
        "merger.streams": cluster.merger.streams_max,
        "merger.searches": cluster.merger.searches_max,
        "merger.searchTimeoutMax": format_duration(cluster.merger.search_timeout_max_ms),
        "merger.unreadTimeout": format_duration(cluster.merger.unread_ms),
        "edge.calls": cluster.edge.calls,
        "edge.tenantCalls": cluster.edge.tenant_calls,
        "edge.tenantSteps": cluster.tenant_steps,
        "edge.tenantChangeBytes": cluster.tenant_change_bytes,
        "edge.messageMemory": cluster.edge.budget_bytes,
        "edge.tenantMessageMemory": cluster.edge.tenant_budget_bytes,
    }


def equal_durations(value: Any) -> Any:
    """`24h` and `1d` are one duration."""
    return {"24h": "1d"}.get(value, value) if isinstance(value, str) else value


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, equal_durations(value)


def test_the_chart_has_the_defaults_of_the_services() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert dict(flat(values["cluster"])) == defaults() | OF_A_CLUSTER
    process = from_environment(NEEDED)
    assert values["kafka"]["compression"] == process.kafka.compression
    assert values["kafka"]["security"].upper() == process.kafka.security_protocol
    assert values["logLevel"] == process.log_level
    assert values["audit"] == process.audit
    traces = process.traces
    assert values["tracing"] == {
        "endpoint": traces.endpoint,
        "ratio": traces.ratio,
        "callsPerSecond": traces.calls_per_s,
    }


def test_a_process_without_settings_has_the_defaults() -> None:
    process: ProcessSettings = from_environment(NEEDED)
    named = {
        name: getattr(process.cluster, name)
        for name in type(DEFAULTS).__slots__
        if name != "arrival_skew_max_ms"
    }
    assert named == {name: getattr(DEFAULTS, name) for name in named}
    assert process.cluster.arrival_skew_max_ms == ARRIVAL_SKEW_MAX_MS


def test_commands_have_the_defaults_of_the_services() -> None:
    settings = read_settings()
    assert dict(_OPTIONS.values()) == {
        name: settings[name][0].replace(",", "") for name, _ in _OPTIONS.values()
    }
    replay = whole_parser().parse_args(["replay", "--objects", "o", "--results", "r"])
    assert replay.scheme == DEFAULTS.scheme
    # A file may tell of any time.
    assert replay.arrival_skew_max is None

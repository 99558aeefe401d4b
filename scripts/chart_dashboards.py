"""Writes the dashboards of the chart, charts/sirocco/dashboards/*.json.

    python scripts/chart_dashboards.py

What stands in them is in chart_dashboards.yaml beside this. tests/charts/test_dashboards.py runs
every query against a real Prometheus that scrapes the services.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import yaml

SPEC = Path(__file__).with_suffix(".yaml")
FOLDER = Path(__file__).resolve().parents[1] / "charts" / "sirocco" / "dashboards"

# Every selector: the release's namespace, and the release where the scraper names it.
ONE = 'namespace="$namespace",app_kubernetes_io_instance=~"$release"'
# Columns of Grafana's grid, and what a panel takes of them.
COLUMNS, WIDTH, HEIGHT, LOW = 24, 8, 8, 4

SOURCE = {"type": "prometheus", "uid": "${datasource}"}

# What YAML makes of a dashboard or a panel.
Spec: TypeAlias = dict[str, Any]


def queries_of(panel: Spec) -> list[tuple[str, str]]:
    """Returns (expression, legend) of each query of a panel."""
    if "pods" in panel:
        found = [(f"sum by (pod) ({panel['pods']}{{@}})", "{{pod}}")]
    elif "quantiles" in panel:
        by = panel.get("by", "")
        labels, legend = (f"le, {by}", f" {{{{{by}}}}}") if by else ("le", "")
        window = panel.get("window", "~")
        rate = f"sum by ({labels}) (rate({panel['quantiles']}_bucket{{@}}[{window}]))"
        found = [
            (f"histogram_quantile(0.{q}, {rate})", f"p{q}{legend}") for q in ("50", "95", "99")
        ]
    else:
        found = [(text, legend) for one in panel["queries"] for legend, text in one.items()]
    return [
        (text.replace("{@", "{" + ONE).replace("[~]", "[$__rate_interval]"), legend)
        for text, legend in found
    ]


def to_json(name: str, dashboard: Spec) -> str:
    """Returns what Grafana imports."""
    whole = {
        "uid": f"sirocco-{name}",
        "title": dashboard["title"],
        "tags": ["sirocco"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "tags": ["sirocco"],
                "title": "Sirocco",
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": list(_panels(dashboard)),
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _variables() -> list[dict[str, Any]]:
    known = "sirocco_process_info"

    def asked(name: str, query: str, **more: Any) -> dict[str, Any]:
        form = {"query": query, "refId": name}
        return {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": SOURCE,
            "definition": query,
            "query": form,
            "refresh": 2,
            "sort": 1,
            **more,
        }

    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        asked("namespace", f"label_values({known}, namespace)"),
        # Where nothing names the release, the label is missing, and `.*` matches that, too.
        asked(
            "release",
            f'label_values({known}{{namespace="$namespace"}}, app_kubernetes_io_instance)',
            includeAll=True,
            allValue=".*",
            current={"text": "All", "value": "$__all"},
        ),
    ]


def _panels(dashboard: Spec) -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for row in dashboard["rows"]:
        title, panels = row["row"], row["panels"]
        is_low = panels[0].get("number", False)
        number += 1
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
        yield {"id": number, "type": "row", "title": title, "gridPos": place, "panels": []}
        y += 1
        height = LOW if is_low else HEIGHT
        width = COLUMNS // len(panels) if is_low else WIDTH
        for i, panel in enumerate(panels):
            number += 1
            line, column = divmod(i * width, COLUMNS)
            place = {"h": height, "w": width, "x": column, "y": y + line * height}
            yield _panel(number, panel, place)
        y += height * -(-len(panels) * width // COLUMNS)


def _panel(number: int, panel: Spec, place: dict[str, int]) -> Spec:
    is_number = panel.get("number", False)
    targets = [
        {
            "refId": chr(ord("A") + i),
            "datasource": SOURCE,
            "expr": expression,
            "legendFormat": legend,
            "instant": is_number,
            "range": not is_number,
        }
        for i, (expression, legend) in enumerate(queries_of(panel))
    ]
    legend = {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"]}
    return {
        "id": number,
        "type": "stat" if is_number else "timeseries",
        "title": panel["title"],
        "description": panel.get("about", ""),
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0}, "overrides": []},
        "options": {} if is_number else {"legend": legend},
        "targets": targets,
    }


def rendered() -> dict[str, str]:
    """Returns the text of each dashboard by its name."""
    spec = yaml.safe_load(SPEC.read_text())
    return {name: to_json(name, dashboard) for name, dashboard in spec.items()}


def main() -> None:
    """Writes all dashboards."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in rendered().items():
        (FOLDER / f"{name}.json").write_text(text)


if __name__ == "__main__":
    main()

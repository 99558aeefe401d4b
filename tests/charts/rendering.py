"""Renders the chart with Helm, for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "sirocco"
SERVICES = ("router", "evaluator", "merger", "coordinator")
# Some cases have these, too: clients of the four.
GATEWAY = "gateway"
CONNECTOR = "connector"
CASES = sorted(CHART.glob("ci/*-values.yaml"))
MINIMAL = CHART / "ci" / "minimal-values.yaml"
FULL = CHART / "ci" / "full-values.yaml"
SECURED = CHART / "ci" / "secured-values.yaml"
CONNECTED_VALUES = CHART / "ci" / "connected-values.yaml"
OBSERVED = CHART / "ci" / "observed-values.yaml"
DEVELOPMENT = CHART / "ci" / "development-values.yaml"
# Without it, a Helm from its Go module assumes Kubernetes 1.20.
KUBERNETES = "1.31.0"

# A pod's name, and the source of a variable that holds it.
POD = "rel-sirocco-router-5d9f7c8b6-x2x7q"
OF_POD = {"fieldRef": {"fieldPath": "metadata.name"}}

# A parsed YAML document.
Manifest: TypeAlias = dict[str, Any]

HELM = shutil.which("helm", path=f"{ROOT / '.cache' / 'bin'}{os.pathsep}{os.environ['PATH']}")
needs_helm = pytest.mark.skipif(HELM is None, reason="Helm is missing: scripts/setup.sh helm")
every_case = pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    command = [HELM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def template(values: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    sets = [word for setting in settings for word in ("--set-json", setting)]
    return helm("template", "rel", CHART, "--kube-version", KUBERNETES, "-f", values, *sets)


@cache
def render(values: Path, *settings: str) -> tuple[Manifest, ...]:
    done = template(values, *settings)
    assert done.returncode == 0, done.stderr
    return tuple(found for found in yaml.safe_load_all(done.stdout) if found)


def of_kind(manifests: tuple[Manifest, ...], kind: str) -> dict[str, Manifest]:
    return {found["metadata"]["name"]: found for found in manifests if found["kind"] == kind}


def by_service(manifests: tuple[Manifest, ...], kind: str) -> dict[str, Manifest]:
    """Returns manifests by the name of the service, without the development servers."""
    return {
        labels.get("app.kubernetes.io/component", ""): found
        for found in of_kind(manifests, kind).values()
        if "app.kubernetes.io/part-of" in (labels := found["metadata"]["labels"])
    }


def services_in(manifests: tuple[Manifest, ...]) -> set[str]:
    """Returns the services of a release: the four, a gateway and a connector where there is one."""
    return {*SERVICES, *({GATEWAY, CONNECTOR} & by_service(manifests, "Deployment").keys())}


def pods_of(manifests: tuple[Manifest, ...]) -> Iterator[tuple[str, Manifest]]:
    """Yields name and pod specification of all that creates pods, also tests and jobs."""
    for found in manifests:
        match found["kind"]:
            case "Pod":
                pod = found["spec"]
            case "Deployment" | "StatefulSet" | "Job":
                pod = found["spec"]["template"]["spec"]
            case "CronJob":
                pod = found["spec"]["jobTemplate"]["spec"]["template"]["spec"]
            case _:
                continue
        yield found["metadata"]["name"], pod


def containers_of(pod: Manifest) -> list[Manifest]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def environment_of(manifests: tuple[Manifest, ...], container: Manifest) -> dict[str, str]:
    """Returns a process's environment; `<…>` for values that only a cluster knows.

    Of these, a name of a pod is made up: services check it.
    """
    configs = of_kind(manifests, "ConfigMap")
    environment: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        if "configMapRef" in source:
            environment |= configs[source["configMapRef"]["name"]]["data"]
    for variable in container["env"]:
        origin = variable.get("valueFrom")
        found = POD if origin == OF_POD else f"<{origin}>"
        environment[variable["name"]] = variable.get("value", found)
    return environment

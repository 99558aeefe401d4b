"""Every manifest against the schemas of the API, and of the operators that the chart needs."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator
from referencing import Registry, Resource

from tests.charts.rendering import CHART, ROOT, Manifest, every_case, needs_helm, render

pytestmark = needs_helm

# The oldest that Chart.yaml promises, and a recent one.
VERSIONS = ("1.27", "1.37")
CRDS = ROOT / ".cache" / "crds"


def schemas_of(version: str) -> Path:
    """Returns the OpenAPI of a version from the package: JSON schemas, one for each kind."""
    found = importlib.util.find_spec("kubernetes_validate")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent / "kubernetes-json-schema"
    return folder / f"v{version}.0-local-strict"


@cache
def registry_of(version: str) -> Registry[Any]:
    definitions = json.loads((schemas_of(version) / "_definitions.json").read_text())
    return Resource.from_contents(definitions) @ Registry()


@cache
def validator_of(kind: str, api_version: str, version: str) -> Draft202012Validator | None:
    """Returns None if the API does not know the kind: then it is an operator's."""
    group, _, name = api_version.rpartition("/")
    stem = "-".join(filter(None, (kind.lower(), group.partition(".")[0], name)))
    path = schemas_of(version) / f"{stem}.json"
    if not path.exists():
        return None
    return Draft202012Validator(json.loads(path.read_text()), registry=registry_of(version))


@cache
def definitions() -> dict[tuple[str, str], Draft7Validator]:
    """Validators of custom resources, by kind and version."""
    found = {}
    for path in CRDS.glob("*.yaml"):
        spec = yaml.load(path.read_text(), yaml.CSafeLoader)["spec"]
        for version in spec["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            # Members of every object.
            schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
            name = f"{spec['group']}/{version['name']}"
            found[spec["names"]["kind"], name] = Draft7Validator(schema)
    return found


def closed(schema: Any) -> Any:
    """Returns a schema that forbids undeclared members: an API server would silently drop them."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    known = {name: closed(one) for name, one in schema.items()}
    if known.pop("x-kubernetes-int-or-string", False):
        return {}
    if "properties" in known and known.get("type") == "object":
        known.setdefault("additionalProperties", False)
    return known


def errors_of(manifest: Manifest, version: str) -> list[str]:
    kind, api_version = manifest["kind"], manifest["apiVersion"]
    validator: Any = validator_of(kind, api_version, version)
    if validator is None:
        validator = definitions().get((kind, api_version))
    if validator is None:
        return [f"{api_version} {kind}: nobody describes it"]
    return [
        f"{kind} {manifest['metadata']['name']}: {error.json_path}: {error.message}"
        for error in validator.iter_errors(manifest)
    ]


def needs_definitions(values: Path) -> bool:
    return values.name == "observed-values.yaml" and not CRDS.is_dir()


@every_case
def test_the_api_takes_every_manifest(values: Path) -> None:
    if needs_definitions(values):
        pytest.skip("definitions of KEDA and Prometheus' operator: scripts/setup.sh helm")
    for version in VERSIONS:
        errors = [error for one in render(values) for error in errors_of(one, version)]
        assert not errors, "\n".join(errors)


def test_the_oldest_version_is_that_of_the_chart() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"].startswith(f">={VERSIONS[0]}.")


def test_what_the_api_does_not_know_is_an_error() -> None:
    [deployment] = [
        one
        for one in render(CHART / "ci" / "minimal-values.yaml")
        if one["kind"] == "Deployment" and one["metadata"]["name"].endswith("router")
    ]
    wrong = json.loads(json.dumps(deployment))
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    wrong["spec"]["replicas"] = "two"
    assert len(errors_of(wrong, "1.37")) == 2
    if not CRDS.is_dir():
        return
    [scaled, *_] = [
        one
        for one in render(CHART / "ci" / "observed-values.yaml")
        if one["kind"] == "ScaledObject"
    ]
    wrong = json.loads(json.dumps(scaled))
    wrong["spec"]["maxReplicas"] = 3
    assert len(errors_of(wrong, "1.37")) == 1

"""Imports point down only, and each outside library is used only by its one adapter."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("sirocco", "services", "loadgen", "sdk/sirocco_client", "sdk/sirocco_api", "spark-jobs")

# A layer may import those listed above it, and itself. Packages on one line may not import each
# other.
LAYERS = (
    ("sirocco.kernels",),
    ("sirocco.model",),
    ("sirocco.schemes", "sirocco.index"),
    ("sirocco.protocol", "sirocco.internal_api"),
    ("sirocco.codec", "sirocco.formats"),
    ("sirocco.transport", "sirocco.telemetry"),
    ("sirocco.runtime",),
    ("sirocco.explain",),
    ("sirocco.services", "sirocco.loadgen", "sirocco.local"),
    # A client of the cluster, as the command line is.
    ("sirocco.services.gateway", "sirocco.services.connector"),
    ("sirocco.cli",),
)
# Folders of a layer may import the folders named here, themselves, and no others.
FOLDERS = {
    "sirocco.kernels": {
        "jit": (),
        "base": ("jit",),
        "text": ("jit", "base"),
        "routing": ("jit", "base"),
        "standing": ("jit", "base"),
        "store": ("jit", "base"),
    },
    "sirocco.index": {"base": (), "routing": ("base",), "standing": ("base",), "store": ("base",)},
    "sirocco.schemes": {
        "map": (),
        "workload": ("map",),
        "builders": ("map", "workload"),
        "balance": ("map", "workload", "builders"),
    },
    "sirocco.schemes.balance": {
        "base": (),
        "ps2stream": ("base",),
        "sstd": ("base",),
        "swarm": ("base",),
        "tornado": ("base",),
    },
    "sirocco.protocol": {
        "contract": (),
        "search": ("contract",),
        "router": ("contract", "search"),
        "evaluator": ("contract", "search"),
        "merger": ("contract", "search"),
        "coordinator": ("contract", "search"),
        "explain": ("contract", "search", "router"),
    },
    "sirocco.protocol.router": {
        "objects": (),
        "queries": ("objects",),
        "map_change": ("objects", "queries"),
    },
    "sirocco.protocol.evaluator": {
        "standing": (),
        "reports": ("standing",),
        "slot": ("standing", "reports"),
        "load": ("standing", "slot"),
    },
    "sirocco.runtime": {
        "process": (),
        "access": ("process",),
        "grpc": ("process", "access"),
        "loop": ("process",),
    },
    "sirocco_client": {
        "base": (),
        "queries": ("base",),
        "objects": ("base", "queries"),
        "connection": ("base", "objects"),
        "publishing": ("base", "objects", "connection"),
        "notifications": ("base", "objects", "connection"),
        "calls": ("base", "queries", "objects", "connection"),
    },
}
# Files beside the folders of a layer combine them.
RANKS = {package: rank for rank, packages in enumerate(LAYERS) for package in packages}
OURS = ("sirocco", "sirocco_client", "sirocco_api")

# Files in one folder that a reader takes in at a glance.
FILES_MAX = 20

# Top-level folders that are installed as parts of `sirocco`, by links in `sirocco/`.
LINKED = ("services", "loadgen")

# Services, which run as processes, and the module that combines them: none imports another.
SERVICES = tuple(
    f"sirocco.services.{each}"
    for each in ("router", "evaluator", "merger", "coordinator", "gateway", "connector")
)
APART = frozenset({*SERVICES, "sirocco.services.embedded"})

# Library → the only files that may import it.
ADAPTERS = {
    "joserfc": ("sirocco/runtime/access/*.py",),
    "confluent_kafka": (
        "sirocco/transport/kafka*.py",
        "services/connector/*/kafka*.py",
        "services/connector/sources/registry*.py",
    ),
    "yaml": ("services/connector/config.py",),
    "httpx": ("services/connector/sinks/*.py", "services/connector/sources/schema_registry.py"),
    "httpcore": ("services/connector/sinks/*.py",),
    "standardwebhooks": (
        "services/connector/sinks/webhook.py",
        "services/connector/sinks/settings.py",
    ),
    "aiomqtt": ("services/connector/sinks/mqtt.py",),
    "redis": ("sirocco/transport/redis*.py",),
    "grpc": (
        "sirocco/transport/*.py",
        "sirocco/runtime/*.py",
        "services/*.py",
        "sdk/sirocco_client/*.py",
        "sdk/sirocco_api/v1/*_pb2_grpc.py",
        "sirocco/internal_api/v1/*_pb2_grpc.py",
    ),
    "grpc_health": ("sirocco/runtime/*.py",),
    "grpc_reflection": ("sirocco/runtime/grpc/*.py",),
    "google.rpc": ("sirocco/runtime/grpc/*.py",),
    "pyarrow.fs": ("sirocco/transport/*archive*.py",),
    "numba": ("sirocco/kernels/*.py",),
    "prometheus_client": (
        "sirocco/telemetry/*.py",
        "sirocco/runtime/*.py",
        "spark-jobs/sirocco_spark/telemetry.py",
    ),
    **dict.fromkeys(("fastapi", "starlette", "uvicorn"), ("services/gateway/*.py",)),
    "pyspark": ("spark-jobs/*.py",),
    "opentelemetry": ("sirocco/telemetry/spans.py",),
    "rich": ("sirocco/cli/*.py",),
    # Imported by name, at the first use.
    "shapely": (),
    "h3": (),
}

# Deciding code gets the time as an argument and has no I/O; only then a seed repeats a run.
PURE = (
    *("sirocco.model", "sirocco.schemes", "sirocco.index", "sirocco.protocol", "sirocco.codec"),
    "sirocco.formats",
)
IMPURE = (
    *("asyncio", "multiprocessing", "random", "secrets", "select", "socket", "subprocess"),
    *("threading", "time", "uuid"),
)

# Packages that use the cluster from outside, and so through the client.
CLIENT_USERS = (
    *("sirocco.loadgen", "sirocco.cli", "sirocco.local", "sirocco.explain"),
    *("sirocco.services.gateway", "sirocco.services.connector", "sirocco_client"),
    # Of the gateway and the connector.
    "sirocco.services.notification_json",
)
# Generated code: contracts for clients, and those between our processes.
MESSAGES = ("sirocco_api", "sirocco.internal_api")
# Layers without wire formats: those above turn messages into values.
MESSAGE_FREE = (
    *("sirocco.kernels", "sirocco.model", "sirocco.schemes", "sirocco.index"),
    "sirocco.protocol",
)


@dataclass(frozen=True, slots=True)
class Import:
    """`module` is the full name; `from a import b` gives both `a` and `a.b`."""

    path: str
    line: int
    importer: str
    module: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def module_name(path: str) -> str:
    """`sdk/sirocco_client/client.py` → `sirocco_client.client`, `services/main.py` →
    `sirocco.services.main`.
    """
    name = path.removeprefix("sdk/").removesuffix(".py").removesuffix("/__init__")
    name = name.replace("/", ".")
    return f"sirocco.{name}" if within(name, LINKED) else name


def imports_of(path: str, source: str) -> Iterator[Import]:
    """Returns all imports of a file, also those inside functions."""
    importer = module_name(path)
    for node in ast.walk(ast.parse(source, path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, importer, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = importer if path.endswith("/__init__.py") else importer.rpartition(".")[0]
                parts = package.split(".")
                above = parts[: len(parts) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield Import(path, node.lineno, importer, base)
            for alias in node.names:
                yield Import(path, node.lineno, importer, f"{base}.{alias.name}")


def within(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def rank_of(module: str) -> tuple[int, str] | None:
    # The innermost package counts: the gateway is a layer of its own among the services.
    found = [package for package in RANKS if within(module, (package,))]
    return (RANKS[max(found, key=len)], max(found, key=len)) if found else None


def faults_of(found: Import) -> Iterator[str]:
    """Returns why an import is not allowed."""
    own, other = rank_of(found.importer), rank_of(found.module)
    if own is not None and other is not None and own[1] != other[1] and other[0] >= own[0]:
        yield f"{own[1]} does not stand above {other[1]}"
    yield from _faults_of_folders(found)
    if within(found.module, LINKED):
        yield f"the package is sirocco.{found.module}"
    for service in SERVICES:
        if within(found.importer, (service,)) and within(found.module, APART - {service}):
            yield "one service imports another"
    if within(found.importer, ("sirocco_client", "sirocco_api")) and within(
        found.module, ("sirocco",)
    ):
        yield "the SDK knows nothing of the engine"
    if within(found.module, ("sirocco_client",)) and not within(found.importer, CLIENT_USERS):
        yield "the engine does not use its own client"
    if within(found.module, MESSAGES) and within(found.importer, MESSAGE_FREE):
        yield "no wire format below the codec"
    if within(found.importer, PURE) and within(found.module, IMPURE):
        yield "this layer has no clock, no chance, no threads and no network"
    for library, adapters in ADAPTERS.items():
        if within(found.module, (library,)) and not any(
            fnmatch(found.path, adapter) for adapter in adapters
        ):
            yield f"{library} is for {', '.join(adapters)} alone"


def _faults_of_folders(found: Import) -> Iterator[str]:
    for layer, folders in FOLDERS.items():
        own, other = _folder(layer, found.importer), _folder(layer, found.module)
        if own is None or other is None or own == other:
            continue
        if other not in folders.get(own, ()):
            yield f"{layer}.{own} does not know {other}"


def _folder(layer: str, module: str) -> str | None:
    """Returns the folder of a layer that a module is in; None if it is in none."""
    name = module.removeprefix(f"{layer}.").partition(".")[0]
    is_folder = within(module, (layer,)) and (path_of(layer) / name).is_dir()
    return name if is_folder else None


def path_of(package: str) -> Path:
    """Returns the folder of a package of the engine or the client."""
    return (
        ROOT / ("sdk" if within(package, ("sirocco_client",)) else "") / package.replace(".", "/")
    )


def our_files() -> list[str]:
    return sorted(
        str(path.relative_to(ROOT))
        for source in SOURCES
        for path in (ROOT / source).rglob("*.py")
        if path.is_file()
    )


@pytest.mark.parametrize("path", our_files())
def test_imports_are_allowed(path: str) -> None:
    found = imports_of(path, (ROOT / path).read_text())
    faults = {f"{one}: {fault}" for one in found for fault in faults_of(one)}
    assert not faults, "\n".join(sorted(faults))


def test_no_modules_import_each_other() -> None:
    """Not even for their types: types that two of them need belong below both."""
    files = {module_name(path): path for path in our_files() if "_pb2" not in path}
    graph = {
        module: {
            found.module
            for found in imports_of(path, (ROOT / path).read_text())
            if found.module in files and found.module != module
        }
        for module, path in files.items()
    }
    # `from a import b` names the package a as well, which imports its parts to export them.
    for module, needed in graph.items():
        needed -= {each for each in needed if module.startswith(f"{each}.")}
    TopologicalSorter(graph).prepare()


def test_every_package_has_a_layer() -> None:
    packages = {
        module_name(str(path.parent.relative_to(ROOT)))
        for path in (ROOT / "sirocco").glob("*/__init__.py")
    }
    assert {package for package in packages if rank_of(package) is None} == set()


def test_every_folder_has_its_rule() -> None:
    for layer, folders in FOLDERS.items():
        path = path_of(layer)
        assert {each.parent.name for each in path.glob("*/__init__.py")} == set(folders), layer


def code_of(folder: str) -> Path:
    """Returns the folder of the code that a folder of tests/unit tests."""
    first, _, rest = folder.partition("/")
    if first == "sdk":
        return ROOT / "sdk" / "sirocco_client" / rest
    return ROOT / folder if first in {*LINKED, "benchmarks"} else ROOT / "sirocco" / folder


def test_a_folder_of_tests_is_a_folder_of_the_code() -> None:
    """What is changed is tested by the folder of the same name."""
    unit = ROOT / "tests" / "unit"
    folders = {str(path.parent.relative_to(unit)) for path in unit.rglob("*.py")} - {"."}
    # Tests of tests, and of what is built.
    folders -= {"oracle", "packages"}
    assert [each for each in sorted(folders) if not code_of(each).is_dir()] == []


@pytest.mark.parametrize("package", ["sirocco", "sirocco_client"])
def test_no_folder_is_crowded(package: str) -> None:
    files = path_of(package).rglob("*.py")
    counts = Counter(path.parent for path in files if "_pb2" not in path.name)
    # Besides `__init__.py`.
    assert [str(folder) for folder, files in counts.items() if files > FILES_MAX + 1] == []


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("sirocco/protocol/router/a.py", "import sirocco.protocol.merger.machine", "know merger"),
        ("sirocco/protocol/merger/a.py", "from sirocco.protocol import router", "know router"),
        ("sirocco/protocol/contract/a.py", "import sirocco.protocol.search.plan", "know search"),
        ("sirocco/index/store/a.py", "from sirocco.index.standing import grid", "know standing"),
        ("sirocco/kernels/base/a.py", "import sirocco.kernels.store.slice_seal", "know store"),
        (
            "sdk/sirocco_client/objects/a.py",
            "import sirocco_client.publishing.outbox",
            "know publishing",
        ),
        ("sirocco/kernels/a.py", "import sirocco.model.text", "does not stand above"),
        ("sirocco/index/a.py", "from sirocco.schemes import map", "does not stand above"),
        ("sirocco/index/a.py", "from sirocco import schemes", "does not stand above"),
        ("sirocco/model/a.py", "from ..protocol import messages", "does not stand above"),
        ("sirocco/model/__init__.py", "from ..codec import wire", "does not stand above"),
        (
            "sirocco/runtime/a.py",
            "def f():\n    import sirocco.services.router",
            "does not stand above",
        ),
        (
            "services/router/a.py",
            "import sirocco.services.merger.settings",
            "one service imports another",
        ),
        (
            "services/router/a.py",
            "from sirocco.services import embedded",
            "one service imports another",
        ),
        (
            "services/router/a.py",
            "from services.main import run",
            "the package is sirocco.services",
        ),
        ("sdk/sirocco_client/a.py", "import sirocco.model.text", "knows nothing of the engine"),
        ("sirocco/runtime/a.py", "import sirocco_client", "its own client"),
        ("sirocco/protocol/a.py", "from sirocco_api.v1 import query_pb2", "no wire format"),
        ("sirocco/model/a.py", "import sirocco.internal_api.v1.slot_service_pb2", "no wire format"),
        ("sirocco/protocol/a.py", "import time", "no clock"),
        ("sirocco/schemes/a.py", "from random import Random", "no clock"),
        ("sirocco/runtime/a.py", "from redis import Redis", "redis is for"),
        ("services/evaluator/a.py", "import confluent_kafka", "confluent_kafka is for"),
        ("sirocco/runtime/a.py", "from pyarrow import fs", "pyarrow.fs is for"),
        ("sirocco/codec/a.py", "import grpc.aio", "grpc is for"),
        ("services/gateway/a.py", "import grpc.aio\nimport sirocco.cli", "does not stand above"),
        ("services/router/a.py", "import sirocco.services.gateway", "one service imports another"),
        ("services/router/a.py", "import sirocco_client", "its own client"),
        ("services/merger/a.py", "from fastapi import FastAPI", "fastapi is for"),
    ],
)
def test_a_forbidden_import_is_found(path: str, source: str, fault: str) -> None:
    faults = [item for one in imports_of(path, source) for item in faults_of(one)]
    assert any(fault in item for item in faults), faults


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("sirocco/model/a.py", "from sirocco.model import errors\nimport numpy as np"),
        ("sirocco/index/a.py", "from ..kernels import columns"),
        ("services/router/a.py", "from sirocco.services.router import publish\nimport grpc"),
        ("services/router/__main__.py", "from sirocco.services.main import run"),
        ("services/embedded.py", "import sirocco.services.router.service"),
        ("sirocco/transport/archive.py", "import pyarrow.fs"),
        ("sirocco/transport/redis_map_store.py", "import redis.exceptions"),
        ("sirocco/runtime/a.py", "import pyarrow\nimport redistribute"),
        ("loadgen/a.py", "import sirocco_client"),
        ("services/gateway/a.py", "import sirocco_client\nfrom sirocco.loadgen import lines"),
        ("services/gateway/a.py", "from fastapi import FastAPI\nimport sirocco.explain.report"),
    ],
)
def test_an_allowed_import_is_not_blamed(path: str, source: str) -> None:
    assert [item for one in imports_of(path, source) for item in faults_of(one)] == []

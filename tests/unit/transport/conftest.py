"""Code generated at test time from a proto that only the tests use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import grpc_tools
import pytest
from grpc_tools import protoc


@dataclass(frozen=True, slots=True)
class Generated:
    messages: ModuleType
    services: ModuleType


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generated]:
    target = tmp_path_factory.mktemp("generated")
    source = Path(__file__).with_name("echo.proto")
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    status = protoc.main(
        [
            "protoc",
            f"-I{source.parent}",
            f"-I{well_known}",
            f"--python_out={target}",
            f"--grpc_python_out={target}",
            str(source),
        ]
    )
    assert status == 0
    sys.path.insert(0, str(target))
    yield Generated(importlib.import_module("echo_pb2"), importlib.import_module("echo_pb2_grpc"))
    sys.path.remove(str(target))

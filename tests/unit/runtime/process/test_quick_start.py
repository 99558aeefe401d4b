"""Processes import their modules without the collector of cycles."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

import pytest

import sirocco.services
from sirocco.runtime.process.quick_start import uncollected

PROGRAMS = sorted(Path(str(sirocco.services.__file__)).parent.glob("*/__main__.py"))


def test_the_collector_rests_and_passes_over_what_was_imported() -> None:
    before = gc.get_freeze_count()
    with uncollected():
        assert not gc.isenabled()
        imported: list[list[int]] = [[] for _ in range(1_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(imported)


def test_it_works_again_after_a_failed_import() -> None:
    with pytest.raises(ImportError), uncollected():
        raise ImportError
    assert gc.isenabled()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.parent.name)
def test_each_service_imports_the_engine_so(program: Path) -> None:
    body = ast.parse(program.read_text()).body
    first = [each.module for each in body if isinstance(each, ast.ImportFrom)]
    inside = [ast.unparse(each.items[0]) for each in body if isinstance(each, ast.With)]
    assert first == ["sirocco.runtime.process.quick_end", "sirocco.runtime.process.quick_start"]
    assert inside == ["uncollected()"]

"""The TypeScript client is what the gateway's description says, and the generator reads no more."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[4]
GENERATOR = runpy.run_path(str(ROOT / "scripts" / "typescript_client.py"))


def test_the_client_is_what_the_gateway_describes() -> None:
    wanted = GENERATOR["client_of"](GENERATOR["description"]())
    assert GENERATOR["FILE"].read_text() == wanted, "run: python scripts/typescript_client.py"


def test_each_call_has_a_method() -> None:
    document = GENERATOR["description"]()
    text = GENERATOR["client_of"](document)
    names = [call["operationId"] for calls in document["paths"].values() for call in calls.values()]
    assert len(set(names)) == len(names) == 10
    for name in names:
        assert f"  async {name}(" in text or f"  {name}Address(" in text


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "integer"}, "number"),
        ({"type": ["string", "null"]}, "string | null"),
        (
            {"type": "array", "items": {"oneOf": [{"type": "string"}, {"type": "number"}]}},
            "(string | number)[]",
        ),
        ({"$ref": "#/components/schemas/Object"}, "SpatialObject"),
        ({"enum": ["a", "b"]}, '"a" | "b"'),
        ({"type": "object", "additionalProperties": True}, "Record<string, unknown>"),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "number"}},
                "required": ["a"],
            },
            "{ a: string; b?: number }",
        ),
    ],
)
def test_types(schema: dict[str, Any], written: str) -> None:
    assert GENERATOR["_type"](schema) == written


def test_what_is_not_read_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        GENERATOR["_type"]({"type": "tuple"})

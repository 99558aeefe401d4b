"""Writes the TypeScript client of the HTTP gateway from its OpenAPI document.

usage: python scripts/typescript_client.py [--check]

The client has no dependencies, and a method for each call that is answered in JSON. Streams are
read by the browser's own `EventSource` and `WebSocket`: of them the client has the address. The
generator reads what our document uses of JSON Schema and refuses the rest; other generators read
the same document at `/openapi.json`.

With `--check` nothing is written; the exit status is 1 if the file is not what the gateway
describes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sirocco.services.gateway.app import make_app
from sirocco.services.gateway.front import Front
from sirocco.services.gateway.settings import GatewaySettings
from sirocco.telemetry.metrics.gateway import GatewayMetrics
from sirocco.telemetry.metrics.process import new_registry

FILE = Path(__file__).parents[1] / "console" / "src" / "gateway.ts"

# A global of the language.
_RENAMED = {"Object": "SpatialObject"}

_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}
_JSON = "application/json"

_BEGIN = """\
// The client of Sirocco's HTTP gateway. Written by scripts/typescript_client.py from the gateway's
// OpenAPI document: do not edit.
"""

_CLASS = """\
/** An answer that is an error, with its problem document. */
export class GatewayError extends Error {
  override readonly name = "GatewayError";
  readonly code: string;
  readonly field: string;

  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
  ) {
    const message = problem.detail ?? problem.title ?? `status ${status}`;
    super(problem.field ? `${problem.field}: ${message}` : message);
    this.code = problem.code ?? "";
    this.field = problem.field ?? "";
  }
}

const JSON_TYPE = "application/json";

type Parameters = Record<string, string | number | boolean | undefined>;

/** A path with the parameters that have a value. */
function withParameters(path: string, parameters: Parameters): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

/** Calls of one gateway. The token is kept in memory alone. */
export class GatewayClient {
  /**
   * @param base Address of the gateway, without a slash at its end; empty: that of the page.
   * @param token What a cluster with tokens asks for.
   */
  constructor(
    readonly base = "",
    public token = "",
  ) {}

  /** @throws GatewayError The answer is an error. */
  async fetch(address: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    if (this.token) headers.set("Authorization", `Bearer ${this.token}`);
    const answer = await fetch(address, { ...init, headers, cache: "no-store" });
    if (answer.ok) return answer;
    let problem: Partial<Problem> = {};
    try {
      problem = (await answer.json()) as Partial<Problem>;
    } catch {
      // Of something before the gateway.
    }
    throw new GatewayError(answer.status, problem);
  }
"""

_END = """\

  async #json(path: string, method: string, body?: unknown, accept = JSON_TYPE): Promise<unknown> {
    const headers: Record<string, string> = { Accept: accept };
    const init: RequestInit = { method, headers };
    if (body !== undefined) {
      headers["Content-Type"] = JSON_TYPE;
      init.body = JSON.stringify(body);
    }
    return (await this.fetch(this.base + path, init)).json();
  }
}
"""


def description() -> dict[str, Any]:
    """Returns the OpenAPI document of a gateway."""
    settings = GatewaySettings(routers="127.0.0.1:1")
    return make_app(Front(settings, GatewayMetrics(new_registry()))).openapi()


def client_of(document: Mapping[str, Any]) -> str:
    """Returns the file of the client."""
    parts = [_BEGIN]
    for name, schema in document["components"]["schemas"].items():
        parts += ["", *_declared(_RENAMED.get(name, name), schema)]
    parts += ["", _CLASS.rstrip("\n")]
    for path, calls in document["paths"].items():
        for method, call in calls.items():
            parts += ["", *_method(path, method, call)]
    return "\n".join(parts) + "\n" + _END


def _declared(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if schema.get("type") != "object":
        raise ValueError(f"{name}: only objects have names")
    yield f"export interface {name} {{"
    for line in _members(schema):
        yield f"  {line};"
    yield "}"


def _members(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, member in schema.get("properties", {}).items():
        yield f"{name}{'' if name in required else '?'}: {_type(member)}"
    if schema.get("additionalProperties"):
        yield "[member: string]: unknown"


def _type(schema: Mapping[str, Any]) -> str:
    """Returns a schema as a type.

    Raises:
        ValueError: It uses what this does not read.
    """
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _RENAMED.get(name, name)
    if "enum" in schema:
        return " | ".join(f'"{value}"' for value in schema["enum"])
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return " | ".join(_type(one) for one in schema[several])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**schema, "type": one}) for one in kind)
    if kind == "array":
        inner = _type(schema["items"]) if "items" in schema else "unknown"
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    if kind == "object":
        members = "; ".join(_members(schema))
        return f"{{ {members} }}" if schema.get("properties") else "Record<string, unknown>"
    if kind == "null":
        return "null"
    if kind not in _PLAIN:
        raise ValueError(f"cannot be written in TypeScript: {schema}")
    return _PLAIN[kind]


def _method(path: str, method: str, call: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of the method for a call."""
    name = call["operationId"]
    parameters = call.get("parameters", ())
    own = [one["name"] for one in parameters if one["in"] == "path"]
    asked = [one for one in parameters if one["in"] == "query"]
    body = call.get("requestBody", {}).get("content", {}).get(_JSON)
    answers = [
        answer["content"][_JSON]["schema"]
        for status, answer in call["responses"].items()
        if status != "default" and _JSON in answer["content"]
    ]
    arguments = [f"{one}: string" for one in own]
    if body is not None:
        arguments.append(f"body: {_type(body['schema'])}")
    if asked:
        members = "; ".join(f"{one['name']}?: {_argument(one['schema'])}" for one in asked)
        arguments.append(f"parameters: {{ {members} }} = {{}}")
    filled = re.sub("{(.*?)}", r"${encodeURIComponent(\1)}", path)
    where = f"`{filled}`" if own else f'"{path}"'
    if asked:
        where = f"withParameters({where}, parameters)"
    yield from _comment(call, asked, method.upper(), path)
    if not answers:
        yield f"  {name}Address({', '.join(arguments)}): string {{"
        yield f"    return this.base + {where};"
        yield "  }"
        return
    kind = " | ".join(dict.fromkeys(_type(one) for one in answers))
    values = [where, f'"{method.upper()}"']
    if "objects=full" in str(call["responses"]):
        # Ids alone would need a second call for what is shown.
        arguments.append('accept = "application/json; objects=full"')
        values += ["body", "accept"]
    elif body is not None:
        values.append("body")
    yield f"  async {name}({', '.join(arguments)}): Promise<{kind}> {{"
    yield f"    return (await this.#json({', '.join(values)})) as {kind};"
    yield "  }"


def _argument(schema: Mapping[str, Any]) -> str:
    return _type(schema).removesuffix(" | null")


def _comment(
    call: Mapping[str, Any], asked: Iterable[Mapping[str, Any]], method: str, path: str
) -> Iterator[str]:
    yield "  /**"
    for line in call["description"].strip().splitlines():
        yield f"   * {line}".rstrip()
    yield "   *"
    yield f"   * {method} {path}"
    for one in asked:
        if "description" in one:
            yield f"   * @param parameters.{one['name']} {one['description']}"
    yield "   */"


def main() -> int:
    """Writes the file, or compares it."""
    text = client_of(description())
    if sys.argv[1:] == ["--check"]:
        return 0 if FILE.read_text() == text else 1
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

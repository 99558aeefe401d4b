"""A small Schema Registry that speaks the part of Confluent's REST API that readers of records use.

None can be installed here: it is a server of its own, in Java, with a licence of its own. Answers
may be spoilt on purpose.
"""

from __future__ import annotations

import base64
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class SchemaRegistry:
    """Schemas by id and by subject, over HTTP.

    Attributes:
        url: Where it is.
        requests: Paths that were asked for.
        spoil: (status, body) instead of any answer; None for good ones.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.spoil: tuple[int, bytes] | None = None
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[tuple[str, int], int] = {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.requests.append(self.path)
                status, body = registry.spoil or registry.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", MEDIA_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(
        self,
        schema: Any,
        *,
        kind: str = "AVRO",
        subject: str = "",
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """Registers a schema: JSON for Avro, bytes of a file's descriptor for Protobuf."""
        number = 100 + len(self._schemas)
        text = base64.b64encode(schema).decode() if isinstance(schema, bytes) else schema
        found = {"schema": text if isinstance(text, str) else json.dumps(text), "id": number}
        if kind != "AVRO":
            found["schemaType"] = kind
        if references:
            found["references"] = references
        self._schemas[number] = found
        if subject:
            self._subjects[subject, 1] = number
        return number

    def answer(self, path: str) -> tuple[int, bytes]:
        parts = urlsplit(path)
        steps = parts.path.strip("/").split("/")
        found = None
        if steps[:2] == ["schemas", "ids"]:
            found = self._schemas.get(int(steps[2]))
        elif steps[0] == "subjects":
            found = self._schemas.get(self._subjects.get((steps[1], int(steps[3])), -1))
            if found is not None:
                found = found | {"subject": steps[1], "version": int(steps[3])}
        if found is None:
            return 404, json.dumps({"error_code": 40403, "message": "Schema not found"}).encode()
        is_protobuf = found.get("schemaType") == "PROTOBUF"
        if is_protobuf and parse_qs(parts.query).get("format") != ["serialized"]:
            # As text, which readers would have to compile.
            found = found | {"schema": 'syntax = "proto3";'}
        return 200, json.dumps(found).encode()


def framed(schema_id: int, payload: bytes, indexes: bytes = b"") -> bytes:
    """Returns a record's value as producers frame it."""
    return struct.pack(">bI", 0, schema_id) + indexes + payload

"""No function, method or class of the engine is used only by tests."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("sirocco", "services", "loadgen")
# Other programs of ours that may use them.
USERS = (*SOURCES, "sdk/sirocco_client", "spark-jobs", "benchmarks", "scripts")

# Called by other software, or meant for tests.
ALLOWED = {
    # Known hashes, and a broker with passwords, are for tests.
    *("fixed_secret", "sasl_address"),
    # Called by generated code.
    *("is_active", "unary_stream", "stream_stream", "set_code", "set_details"),
    # Called by http.server.
    *("verify_request", "shutdown_request", "service_actions", "handle_error"),
    *("do_GET", "log_message"),
    # Called by uvicorn.
    *(
        "connection_lost",
        "data_received",
        "handle_cont",
        "handle_ping",
        "on_body",
        "on_header",
        "on_headers_complete",
        "on_message_begin",
        "on_message_complete",
        "pause_writing",
        "resume_writing",
        "_start_asgi_task",
        "run_asgi",
        "send_400_response",
        "timeout_keep_alive_handler",
    ),
    *("on_message_complete", "on_response_complete", "handle_websocket_upgrade", "startup"),
    *("capture_signals", "shutdown"),
    # Called by Rich.
    "on_broken_pipe",
    # Called by joserfc.
    "get_alg",
    # Called by Starlette.
    "to_string",
    # Called by Numba.
    *("get_source_stamp", "get_suitable_cache_subpath", "ensure_cache_path"),
    *("load_overload", "get_call_template", "add_overload"),
    *("_compile_for_args", "_optimize_functions"),
    # Called by PyYAML.
    *("compose_node", "construct_mapping"),
    # Called by httpcore.
    *("connect_tcp", "connect_unix_socket"),
    # Called by rich.
    "render_str",
}


def python_files(folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        yield from (p for p in sorted((ROOT / folder).rglob("*.py")) if "_pb2" not in p.name)


def exported(tree: ast.Module) -> Counter[str]:
    """Returns the names in `__all__` and their imports, which do not count as a use."""
    names = Counter(
        each.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for each in ast.walk(node.value)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )
    imported = Counter(
        each.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for each in node.names
        if each.name in names
    )
    return names + imported


def test_what_tests_alone_reach_is_gone() -> None:
    texts = {path: path.read_text() for path in python_files(USERS)}
    uses: Counter[str] = Counter()
    for text in texts.values():
        uses.update(re.findall(r"\w+", text))
        uses.subtract(exported(ast.parse(text)))
    found = []
    for path in python_files(SOURCES):
        lines = texts[path].splitlines()
        for node in ast.walk(ast.parse(texts[path])):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            name = node.name
            if name in ALLOWED or name.startswith(("__", "visit_")):
                continue
            # Its definition and its own text do not count as a use, either.
            text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            own = len(re.findall(rf"\b{name}\b", text))
            if uses[name] - own <= 0:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert not found, "\n".join(found)

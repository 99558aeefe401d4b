"""The configuration of a connector: a file in YAML.

Secrets are taken from the environment: `${NAME}` within a text. Aliases, repeated keys and unknown
members are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from sirocco_client import Tls, TokenFile
from sirocco_client.connection.endpoints import parse_addresses
from sirocco_client.connection.tokens import Token
from sirocco_client.errors import InvalidArgument as BadValue

from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.runner import SinkConfig, SourceConfig
from sirocco.services.connector.sections import Section
from sirocco.services.connector.sinks import read_sink
from sirocco.services.connector.sources import read_source

# A thousand sources with all their members are a tenth of it.
CONFIG_BYTES_MAX = 1 << 20
DEPTH_MAX = 20

# Of certificates and tokens.
FILE_BYTES_MAX = 4 << 20

# Names are labels of metrics, and parts of consumer groups and transactional ids.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
# `$${` is a `${` that is meant so.
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorConfig:
    """What a connector does.

    Attributes:
        router: host:port of routers, with commas between them.
        token: bearer token, or its file, which is read again when it changes; None without.
        ca: certificate of the authority of the services; None: plain text.
        server_name: the name in their certificates.
        timeout_s: for one call to the cluster, before it is made again.
        sources: by name.
        sinks: by name.
    """

    router: str
    token: Token = field(default=None, repr=False)
    ca: bytes | None = field(default=None, repr=False)
    server_name: str = "sirocco"
    timeout_s: float = 30.0
    sources: Mapping[str, SourceConfig]
    sinks: Mapping[str, SinkConfig]

    def tls(self) -> Tls | None:
        """Returns how routers and mergers are reached."""
        if self.ca is None:
            return None
        return Tls(root_certificates=self.ca, server_name=self.server_name)


def load_config(path: Path, environment: Mapping[str, str] | None = None) -> ConnectorConfig:
    """Reads a file.

    Raises:
        InvalidArgument: It cannot be used; `field` is the path of the member.
    """
    data = read_file(path, "configuration", CONFIG_BYTES_MAX)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path}: is no UTF-8", field="configuration") from None
    return read_config(text, os.environ if environment is None else environment)


def read_config(text: str, environment: Mapping[str, str]) -> ConnectorConfig:
    """Reads a configuration; variables without a value in `environment` are errors.

    Raises:
        InvalidArgument: It cannot be used; `field` is the path of the member.
    """
    top = Section(_filled(_yaml(text), environment, "", 0), "")
    tls = top.section("tls")
    ca = tls.text("ca", "")
    found = ConnectorConfig(
        router=_router(top, environment),
        token=_token(top),
        ca=read_file(Path(ca), "tls.ca") if ca else None,
        server_name=tls.text("server_name", "sirocco"),
        timeout_s=top.duration_s("timeout", 30.0, 0.1, 3_600.0),
        sources=_named(top, "sources", read_source),
        sinks=_named(top, "sinks", read_sink),
    )
    tls.end()
    top.end()
    if not found.sources and not found.sinks:
        raise InvalidArgument("has neither sources nor sinks", field="configuration")
    return found


def read_file(path: Path, field: str, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """Returns the bytes of a file that a member names.

    Raises:
        InvalidArgument: It cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise InvalidArgument(f"{path}: {error.strerror}", field=field) from error
    if len(data) > bytes_max:
        raise InvalidArgument(f"{path}: has more than {bytes_max} bytes", field=field)
    return data


class _Loader(yaml.SafeLoader):
    """Refuses aliases, which multiply what a text holds, and keys that are given twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are not used here", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value!r:.60} is given twice", problem_mark=key.start_mark
                )
            if isinstance(key.value, str):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _yaml(text: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except RecursionError:
        raise InvalidArgument("is nested too deeply", field="configuration") from None
    except yaml.YAMLError as error:
        # Of several lines, with the place.
        reason = " ".join(str(error).split())
        raise InvalidArgument(f"is no YAML: {reason:.300}", field="configuration") from None
    except ValueError as error:
        # A date that is none, for example.
        raise InvalidArgument(f"is no YAML: {error!s:.300}", field="configuration") from None


def _filled(value: Any, environment: Mapping[str, str], path: str, depth: int) -> Any:
    """Returns a value with the variables of its texts filled in."""
    if depth > DEPTH_MAX:
        raise InvalidArgument("is nested too deeply", field=path)
    if isinstance(value, str):
        return _with_variables(value, environment, path)
    if isinstance(value, list):
        return [
            _filled(each, environment, f"{path}[{row}]", depth + 1)
            for row, each in enumerate(value)
        ]
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise InvalidArgument(f"{name!r:.60} is no name: quote it", field=path or "names")
        return {
            name: _filled(each, environment, f"{path}.{name:.80}" if path else name, depth + 1)
            for name, each in value.items()
        }
    return value


def _with_variables(text: str, environment: Mapping[str, str], path: str) -> str:
    def value_of(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return "${"
        if name not in environment:
            raise InvalidArgument(f"{name} is not set in the environment", field=path)
        return environment[name]

    return _VARIABLE.sub(value_of, text)


def _router(top: Section, environment: Mapping[str, str]) -> str:
    found = top.text("router", environment.get("SIROCCO_ROUTER", ""))
    if not found:
        raise InvalidArgument("is missing, and so is SIROCCO_ROUTER", field="router")
    try:
        return ",".join(parse_addresses(found, "router"))
    except BadValue as error:
        raise InvalidArgument(error.message, field="router") from None


def _token(top: Section) -> Token:
    given, path = top.text("token", ""), top.text("token_file", "")
    if given and path:
        raise InvalidArgument("give it or token, not both", field="token_file")
    if path:
        try:
            return TokenFile(path)
        except BadValue as error:
            raise InvalidArgument(error.message, field="token_file") from None
    return given or None


def _named(top: Section, member: str, read: Callable[[str, Mapping[str, Any]], T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for name, section in top.sections(member).items():
        if not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"{name!r:.60} is not up to 100 letters, digits, dots, - and _", field=member
            )
        found[name] = read(name, section)
    return found

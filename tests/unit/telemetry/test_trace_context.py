"""What W3C Trace Context allows, by the letter, and nothing longer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirocco.telemetry.trace_context import TraceContext, read_context

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PLACE = TraceContext(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        (PARENT, True),
        (PARENT[:-2] + "00", False),
        (PARENT[:-2] + "03", True),
        # A later version may append what we do not know.
        ("cc" + PARENT[2:] + "-what-comes", True),
    ],
)
def test_what_is_valid(text: str, is_sampled: bool) -> None:
    assert read_context(text) == PLACE._replace(is_sampled=is_sampled)


@pytest.mark.parametrize(
    "text",
    [
        "",
        PARENT.upper(),
        PARENT[:-1],
        PARENT + "-",
        PARENT + "\n",
        " " + PARENT,
        PARENT.replace("4", "\N{ARABIC-INDIC DIGIT FOUR}"),
        "ff" + PARENT[2:],
        "01" + PARENT[2:] + "x",
        "01" + PARENT[2:] + "-" + 128 * "x",
        f"00-{32 * '0'}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{16 * '0'}-01",
    ],
)
def test_what_is_not(text: str) -> None:
    assert read_context(text, "a=1") is None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a=1", "a=1"),
        ("rojo=00f067aa0ba902b7, congo=t61rcWkgMzE ,", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        ("1tenant@sys=x y", "1tenant@sys=x y"),
        ("a=1,a=2", ""),
        ("a=", ""),
        ("A=1", ""),
        ("1a=1", ""),
        ("a=\u00fc", ""),
        ("a=1\r\nb: 2", ""),
        ("a=b=c", ""),
        (",".join(f"a{n}=1" for n in range(33)), ""),
        ("a=" + 256 * "x", "a=" + 256 * "x"),
        ("a=" + 257 * "x", ""),
        ("a=" + 511 * "x", ""),
    ],
)
def test_a_bad_state_costs_itself_alone(text: str, kept: str) -> None:
    assert read_context(PARENT, text) == PLACE._replace(state=kept)


@given(st.integers(1, (1 << 128) - 1), st.integers(1, (1 << 64) - 1), st.booleans())
def test_what_is_written_is_read(trace_id: int, span_id: int, is_sampled: bool) -> None:
    place = TraceContext(trace_id, span_id, is_sampled)
    assert read_context(place.traceparent) == place


@given(st.text(max_size=600), st.text(max_size=600))
def test_no_text_raises(traceparent: str, tracestate: str) -> None:
    read_context(traceparent, tracestate)
    read_context(PARENT, tracestate)

"""Lines of an open pipe are passed on: none waits for lines that would fill a batch."""

from __future__ import annotations

import gzip
import os
import signal
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import closing
from io import FileIO
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from sirocco.loadgen import live_lines
from sirocco.loadgen.lines import read_objects
from sirocco.loadgen.live_lines import LINGER_S, LivePipe, live_chunks


@pytest.fixture
def pipe() -> Iterator[tuple[Path, int]]:
    """Returns a pipe as a path to read, and the end to write, which the test closes."""
    reading, writing = os.pipe()
    yield Path(f"/dev/fd/{reading}"), writing
    os.close(reading)


def line(number: int) -> bytes:
    return b'{"id": %d, "lon": 1, "lat": 2}\n' % number


def test_what_is_there_comes_while_the_pipe_is_open(pipe: tuple[Path, int]) -> None:
    path, writing = pipe
    batches = read_objects(path, "pipe", 1_000)
    os.write(writing, line(1) + line(2))
    # The pipe is open: a reader that waited for its end would wait for ever.
    assert next(batches).objects.ids.tolist() == [1, 2]
    # The beginning of a line delays nothing, and is not a line.
    os.write(writing, line(3) + line(4)[:7])
    third = next(batches)
    assert (third.objects.ids.tolist(), third.lines.tolist()) == ([3], [3])
    os.write(writing, line(4)[7:] + b"\n" + b"{}\n" + line(5)[:-1])
    os.close(writing)
    last = list(batches)
    assert [number for batch in last for number in batch.objects.ids.tolist()] == [4, 5]
    assert [(bad.line, bad.file) for batch in last for bad in batch.bad] == [(6, "pipe")]


class SignalError(Exception):
    """Raised by the handler of a signal, as `KeyboardInterrupt` is."""


@pytest.mark.parametrize("begin", [b"", line(1)], ids=["first bytes", "next lines"])
def test_a_signal_that_does_not_end_the_wait_is_noticed(
    pipe: tuple[Path, int], begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal arrives in another thread: to the wait it is as if it had come just before."""
    path, writing = pipe
    os.write(writing, begin)
    is_noticed = threading.Event()
    has_waited: list[bool] = []
    waits = threading.Event()
    is_ready = live_lines._is_ready

    def noted(source: FileIO, timeout_s: float) -> bool:
        # Not the wait of a line for others: that one is short.
        if timeout_s > LINGER_S:
            waits.set()
        return is_ready(source, timeout_s)

    monkeypatch.setattr(live_lines, "_is_ready", noted)

    def interrupt() -> None:
        waits.wait(120.0)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        has_waited.append(not is_noticed.wait(120.0))
        # Ends a wait that goes on.
        os.close(writing)

    def handle(_number: int, _frame: object) -> None:
        raise SignalError

    def read() -> None:
        thread.start()
        list(live_chunks(LivePipe(path), 10, 100))

    before = signal.signal(signal.SIGUSR1, handle)
    thread = threading.Thread(target=interrupt)
    try:
        with pytest.raises(SignalError):
            read()
        is_noticed.set()
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert has_waited == [False]


def test_a_steady_trickle_is_not_gathered_until_it_pauses(pipe: tuple[Path, int]) -> None:
    path, writing = pipe
    is_enough = threading.Event()

    def write() -> None:
        while not is_enough.wait(LINGER_S / 5):
            os.write(writing, b"x\n")
        os.close(writing)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    with closing(cast(Any, live_chunks(LivePipe(path), 1_000_000, 100))) as chunks:
        first, second = next(chunks), next(chunks)
        assert [number for number, _ in first + second] == list(range(1, len(first + second) + 1))
    is_enough.set()
    writer.join()


def test_packed_lines_come_as_they_are_flushed(pipe: tuple[Path, int]) -> None:
    path, writing = pipe
    packer = zlib.compressobj(wbits=31)
    batches = read_objects(path, "pipe", 1_000)
    for number in range(1, 4):
        os.write(writing, packer.compress(line(number)) + packer.flush(zlib.Z_SYNC_FLUSH))
        assert next(batches).objects.ids.tolist() == [number]
    # An incomplete last line is reported after the others.
    os.close(writing)
    (broken,) = list(batches)
    assert "damaged from line 4" in str(broken.bad[0].error)


@pytest.mark.parametrize("damage", ["rubbish behind it", "sum is wrong", "cut"])
def test_what_comes_before_damage_comes(pipe: tuple[Path, int], damage: str) -> None:
    path, writing = pipe
    packed = gzip.compress(b"".join(line(number) for number in range(50)))
    if damage == "rubbish behind it":
        packed += b"rubbish"
    elif damage == "sum is wrong":
        packed = packed[:-8] + bytes([packed[-8] ^ 1]) + packed[-7:]
    else:
        packed = packed[:-8]
    os.write(writing, packed)
    os.close(writing)
    batches = list(read_objects(path, "pipe", 1_000))
    assert [i for batch in batches for i in batch.objects.ids.tolist()] == list(range(50))
    ((bad,),) = [batch.bad for batch in batches if batch.bad]
    assert "damaged from line 51" in str(bad.error)


@pytest.mark.parametrize("packed", [False, True])
def test_a_fast_pipe_comes_whole_and_in_order(pipe: tuple[Path, int], packed: bool) -> None:
    path, writing = pipe
    count, rows = 20_000, 700
    content = b"".join(line(number) for number in range(count))
    content = gzip.compress(content) if packed else content

    def write() -> None:
        with os.fdopen(writing, "wb") as out:
            out.write(content)

    threading.Thread(target=write, daemon=True).start()
    batches = list(read_objects(path, "pipe", rows))
    assert [i for batch in batches for i in batch.objects.ids.tolist()] == list(range(count))
    assert max(len(batch.objects) for batch in batches) <= rows


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_has_the_lines_of_a_file(tmp_path: Path, seed: int, packed: bool) -> None:
    rng = Random(seed)
    choice = [b"", b"  ", b"\r", b"a", b"bc", b"d" * 40, b"e" * 41, b"f" * 200, "é".encode()]
    content = b"\n".join(rng.choices(choice, k=rng.randrange(12)))
    content = rng.choice([b"", b"\xef\xbb\xbf"]) + content + rng.choice([b"", b"\n"])
    stored = content
    if packed:
        cut = rng.randrange(len(content) + 1)
        stored = gzip.compress(content[:cut]) + gzip.compress(content[cut:]) + b"\0" * 3
    reading, writing = os.pipe()

    def write() -> None:
        begin = 0
        while begin < len(stored):
            begin += os.write(writing, stored[begin : begin + rng.randint(1, 30)])
        os.close(writing)

    threading.Thread(target=write, daemon=True).start()
    chunks = list(live_chunks(LivePipe(Path(f"/dev/fd/{reading}")), 3, 40))
    os.close(reading)
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    expected = [(i, x[:41]) for i, x in enumerate(lines, 1) if x and not x.isspace()]
    assert [line for chunk in chunks for line in chunk] == expected, f"seed={seed}"
    assert all(1 <= len(chunk) <= 3 for chunk in chunks)


def test_a_line_without_an_end_takes_no_memory(pipe: tuple[Path, int]) -> None:
    path, writing = pipe

    def write() -> None:
        with os.fdopen(writing, "wb") as out:
            for _ in range(200):
                out.write(b"x" * 100_000)
            out.write(b"\nlast")

    tracemalloc.start()
    threading.Thread(target=write, daemon=True).start()
    chunks = list(live_chunks(LivePipe(path), 10, 1_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [line for chunk in chunks for line in chunk] == [(1, b"x" * 1_001), (2, b"last")]
    assert peak < 2_000_000


def test_what_is_no_pipe_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        next(read_objects(tmp_path, "directory"))
    with pytest.raises(FileNotFoundError):
        next(read_objects(tmp_path / "missing", "missing"))
    assert list(read_objects(Path("/dev/null"), "null")) == []


@pytest.mark.parametrize("content", [b"\n", b"ab\n"])
def test_a_packed_pipe_takes_no_more_memory_than_a_plain_one(
    pipe: tuple[Path, int], content: bytes
) -> None:
    """A kilobyte of gzip may hold a megabyte of lines."""
    path, writing = pipe
    count = (1 << 20) // len(content)
    packed = gzip.compress(content * count) * 2 + gzip.compress(b"\nlast")

    def write() -> None:
        with os.fdopen(writing, "wb") as out:
            out.write(packed)

    threading.Thread(target=write, daemon=True).start()
    tracemalloc.start()
    number, last = 0, b""
    for chunk in live_chunks(LivePipe(path), 1_000, 1_000):
        number, last = chunk[-1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (number, last) == (2 * count * content.count(b"\n") + 2, b"last")
    assert peak < 6_000_000


def test_a_packed_pipe_ends_where_a_piece_ends(pipe: tuple[Path, int]) -> None:
    path, writing = pipe
    line = b"x" * 1_023 + b"\n"
    os.write(writing, gzip.compress(line * 256) + b"\0\0" + gzip.compress(line * 512))
    os.close(writing)
    lines = [number for chunk in live_chunks(LivePipe(path), 1_000, 2_000) for number, _ in chunk]
    assert lines == list(range(1, 769))

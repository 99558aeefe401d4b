"""The contract of every archive, and the local one's further properties."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from sirocco.transport.archive import (
    Archive,
    LocalArchive,
    MemoryArchive,
    ObjectStoreArchive,
    folder_of,
    open_archive,
)
from sirocco.transport.errors import BlobExists, BlobNotFound, TransportUnavailable


@pytest.fixture(params=["memory", "local", "object store"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    if request.param == "memory":
        return open_archive("memory://")
    if request.param == "local":
        return open_archive(f"{tmp_path}/a b/archive")
    # A file system under pyarrow replaces the stores: the same calls, no network.
    return ObjectStoreArchive(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "bucket/x")


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/var/archive/", "/var/archive/east"),
        ("file:///var/a%20b", "file:///var/a%20b/east"),
        ("s3://bucket/prefix/", "s3://bucket/prefix/east"),
        ("s3://bucket", "s3://bucket/east"),
        (
            "s3://bucket/prefix?endpoint_override=http://store:9000",
            "s3://bucket/prefix/east?endpoint_override=http://store:9000",
        ),
    ],
)
def test_folders_of_an_archive(uri: str, expected: str) -> None:
    assert folder_of(uri, "east") == expected


def test_blobs_come_back_and_are_listed(archive: Archive) -> None:
    assert archive.list("") == []
    contents = {"slot/1/0-a": b"", "slot/1/1-b": b"\x00" * 100_000, "slot/10/0": b"x", "top": b"y"}
    for name, blob in contents.items():
        archive.write(name, blob)
    assert {name: archive.read(name) for name in contents} == contents
    assert archive.list("") == sorted(contents)
    assert archive.list("slot/1") == ["slot/1/0-a", "slot/1/1-b", "slot/10/0"]
    assert archive.list("slot/1/") == ["slot/1/0-a", "slot/1/1-b"]
    assert archive.list("slot/1/1") == ["slot/1/1-b"]
    assert archive.list("none/") == []


def test_blobs_are_immutable_and_repeats_succeed(archive: Archive) -> None:
    archive.write("a/b", b"one")
    archive.write("a/b", b"one")
    with pytest.raises(BlobExists):
        archive.write("a/b", b"two")
    assert archive.read("a/b") == b"one"


def test_deleted_blobs_are_gone(archive: Archive) -> None:
    archive.write("a/b", b"one")
    archive.delete("a/b")
    archive.delete("a/b")
    archive.delete("a")
    with pytest.raises(BlobNotFound):
        archive.read("a/b")
    with pytest.raises(BlobNotFound):
        archive.read("a")
    assert archive.list("") == []
    archive.write("a/b", b"two")
    assert archive.read("a/b") == b"two"


@pytest.mark.parametrize("name", ["", "/a", "a//b", "../a", "a/./b", "a/", "a\0b", ".partial/x"])
def test_names_that_are_no_paths_are_refused(archive: Archive, name: str) -> None:
    for call in (lambda: archive.write(name, b""), lambda: archive.read(name)):
        with pytest.raises(ValueError, match="no plain relative path"):
            call()
    with pytest.raises(ValueError, match="no plain relative path"):
        archive.delete(name)


def test_of_writers_at_once_one_wins(archive: Archive) -> None:
    if isinstance(archive, ObjectStoreArchive):
        pytest.skip("object stores have no create-only by this interface; names hold the epoch")
    start = threading.Barrier(4)
    outcomes: list[bytes | None] = []

    def attempt(contents: bytes) -> None:
        start.wait()
        try:
            archive.write("contested", contents)
            outcomes.append(contents)
        except BlobExists:
            outcomes.append(None)

    threads = [threading.Thread(target=attempt, args=(b"%d" % n * 10_000,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [contents for contents in outcomes if contents is not None]
    assert winners == [archive.read("contested")]


def test_a_half_written_blob_is_never_listed(tmp_path: Path) -> None:
    archive = LocalArchive(tmp_path)
    archive.write("a", b"whole")
    (tmp_path / ".partial" / "77-1").write_bytes(b"ha")
    assert archive.list("") == ["a"]
    assert LocalArchive(tmp_path).read("a") == b"whole"


def test_processes_of_one_number_on_a_shared_volume_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers every process has the number 1."""
    one, other = LocalArchive(tmp_path), LocalArchive(tmp_path)
    link, fsync = os.link, os.fsync
    others = iter(range(100))

    def between(call: Callable[..., None]) -> Callable[..., None]:
        def interrupted(*arguments: Any) -> None:
            # The other process writes a blob of its own right before each step of the first one.
            with monkeypatch.context() as plain:
                plain.setattr("os.link", link)
                plain.setattr("os.fsync", fsync)
                number = next(others)
                other.write(f"b/{number}", b"other %d" % number)
            call(*arguments)

        return interrupted

    monkeypatch.setattr("os.link", between(link))
    monkeypatch.setattr("os.fsync", between(fsync))
    for number in range(3):
        one.write(f"a/{number}", b"one %d" % number)
    for name in one.list(""):
        folder, _, which = name.partition("/")
        reported = "one" if folder == "a" else "other"
        assert one.read(name) == f"{reported} {which}".encode()
    assert len(one.list("a/")) == 3
    assert not list((tmp_path / ".partial").iterdir())


def test_what_crashed_writers_left_is_removed_after_a_day(tmp_path: Path) -> None:
    LocalArchive(tmp_path)
    old, young = tmp_path / ".partial" / "old", tmp_path / ".partial" / "young"
    for path in (old, young):
        path.write_bytes(b"ha")
    day_ago_s = old.stat().st_mtime - 86_500
    os.utime(old, (day_ago_s, day_ago_s))
    LocalArchive(tmp_path)
    assert not old.exists()
    assert young.exists()


def test_uris_choose_the_archive(tmp_path: Path) -> None:
    assert isinstance(open_archive("memory://"), MemoryArchive)
    by_path, by_uri = open_archive(str(tmp_path / "x")), open_archive((tmp_path / "x").as_uri())
    assert isinstance(by_path, LocalArchive)
    by_path.write("n", b"1")
    assert by_uri.read("n") == b"1"
    for wrong in ("relative/path", "file:relative", "no-such-scheme://x/y"):
        with pytest.raises(ValueError, match=r"archive|scheme"):
            open_archive(wrong)


def test_errors_of_an_address_do_not_print_it() -> None:
    for wrong in ("no-such://key:secret@bucket/x", "s3://key:secret@bucket/x?regio=eu"):
        with pytest.raises(ValueError, match=r"(?i)^archive: un") as caught:
            open_archive(wrong)
        assert "secret" not in str(caught.value)


def test_a_failing_disk_is_unavailable(tmp_path: Path) -> None:
    blocked = tmp_path / uuid.uuid4().hex
    blocked.write_bytes(b"a file where the directory should be")
    with pytest.raises(TransportUnavailable):
        LocalArchive(blocked)
    archive = LocalArchive(tmp_path / "ok")
    archive.write("a", b"1")
    with pytest.raises(TransportUnavailable):
        archive.write("a/b", b"a is a file")


def test_memory_is_counted() -> None:
    archive = MemoryArchive()
    archive.write("a", b"12345")
    archive.write("b", b"678")
    archive.delete("a")
    assert archive.bytes_total == 3

"""Jars of the broker: only the released bytes are accepted."""

from __future__ import annotations

import hashlib
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sirocco.local import kafka
from sirocco.local.kafka import check_jars, fetch_jars, kafka_version
from sirocco.local.process import LocalError

JARS = {"a-1.jar": b"one", "b-2.jar": b"two"}


@pytest.fixture
def checksums(tmp_path: Path) -> Path:
    path = tmp_path / "jars.sha256"
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in JARS.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def written(directory: Path, jars: dict[str, bytes]) -> Path:
    directory.mkdir()
    for name, data in jars.items():
        (directory / name).write_bytes(data)
    return directory


SPOILT: dict[str, tuple[dict[str, bytes], str]] = {
    "other bytes": ({**JARS, "b-2.jar": b"twp"}, "b-2.jar is not the file"),
    "one is missing": ({"a-1.jar": b"one"}, "b-2.jar is missing"),
    "one more": ({**JARS, "c-3.jar": b"evil"}, "c-3.jar is not the file"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_other_jars_than_those_released_are_refused(
    name: str, tmp_path: Path, checksums: Path
) -> None:
    jars, reported = SPOILT[name]
    with pytest.raises(LocalError, match=reported):
        check_jars(written(tmp_path / "jars", jars), checksums)


def test_those_released_are_taken(tmp_path: Path, checksums: Path) -> None:
    check_jars(written(tmp_path / "jars", JARS), checksums)


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Makes `mvn` a script that delivers one jar with the given bytes."""

    def bring(data: bytes) -> None:
        script = tmp_path / "mvn"
        script.write_text(
            "#!/bin/sh\n"
            "for each; do case $each in -DoutputDirectory=*) out=${each#*=};; esac; done\n"
            f'mkdir -p "$out"; printf %s {data.decode()} > "$out/a-1.jar"\n'
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(shutil, "which", lambda _: str(script))

    return bring


def test_a_fetch_of_other_bytes_leaves_no_files(
    tmp_path: Path, maven: Callable[[bytes], None]
) -> None:
    checksums = tmp_path / "one.sha256"
    checksums.write_text(f"{hashlib.sha256(b'one').hexdigest()}  a-1.jar\n")
    target = tmp_path / "kafka"
    maven(b"evil")
    with pytest.raises(LocalError, match=r"a-1.jar is not the file"):
        fetch_jars(tmp_path / "pom.xml", target, "a-*.jar", checksums)
    assert not target.exists()
    maven(b"one")
    assert fetch_jars(tmp_path / "pom.xml", target, "a-*.jar", checksums) == target


def test_the_list_is_of_the_version_in_the_pom() -> None:
    names = [line.split()[1] for line in kafka._CHECKSUMS.read_text().splitlines()]
    assert f"kafka_2.13-{kafka_version()}.jar" in names
    assert f"kafka-server-{kafka_version()}.jar" in names
    assert names == sorted(names, key=str.casefold) or len(names) == len(set(names))

"""How an image's kernels are found: the level of the CPU, and links into the writable cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirocco.services import precompiled
from sirocco.services.precompiled import LEVELS, supported, use

V3 = LEVELS["x86-64-v3"]
ALL = LEVELS["x86-64-v4"]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    kernels = tmp_path / "image" / "0123" / "kernels_ab"
    kernels.mkdir(parents=True)
    (kernels / "one.nbi").write_text("index")
    (kernels / "one.1.nbc").write_text("code")
    (tmp_path / "image" / "levels").write_text("x86-64-v3 x86-64\n")
    return tmp_path / "image"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompiled, "cpu_flags", lambda: V3)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


@pytest.mark.parametrize(
    ("levels", "flags", "machine", "expected"),
    [
        (["x86-64-v4", "x86-64-v3"], ALL, "x86_64", "x86-64-v4"),
        (["x86-64-v4", "x86-64-v3"], V3 | {"sse"}, "x86_64", "x86-64-v3"),
        (["x86-64-v3"], V3 - {"bmi2"}, "x86_64", None),
        (["x86-64-v3", "x86-64"], V3 - {"bmi2"}, "x86_64", "x86-64"),
        (["x86-64-v3"], V3, "aarch64", None),
        (["x86-64-v3", "generic"], frozenset(), "aarch64", "generic"),
        (["no-such-level"], ALL, "x86_64", None),
        ([], ALL, "x86_64", None),
    ],
)
def test_the_first_level_that_the_cpu_can_run(
    levels: list[str], flags: frozenset[str], machine: str, expected: str | None
) -> None:
    assert supported(levels, flags, machine) == expected


def test_flags_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\n\nprocessor\t: 1\n")
    assert precompiled.cpu_flags(tmp_path / "cpuinfo") == {"fpu", "avx2", "fma"}
    assert precompiled.cpu_flags(tmp_path / "missing") == frozenset()


@pytest.mark.usefixtures("server")
def test_the_cache_is_filled_with_links(image: Path, tmp_path: Path) -> None:
    environment = {"SIROCCO_KERNEL_CACHE": str(tmp_path / "cache")}
    use(image, environment)
    assert environment["NUMBA_CPU_NAME"] == "x86-64-v3"
    assert environment["NUMBA_CPU_FEATURES"] == ""
    code = tmp_path / "cache" / "0123" / "kernels_ab" / "one.1.nbc"
    assert code.is_symlink()
    assert code.read_text() == "code"
    assert [one.name for one in (tmp_path / "cache").iterdir()] == ["0123"]
    # Code compiled there since stays.
    code.unlink()
    use(image, {"SIROCCO_KERNEL_CACHE": str(tmp_path / "cache")})
    assert not code.exists()


@pytest.mark.usefixtures("server")
def test_a_named_cpu_overrides_detection(image: Path, tmp_path: Path) -> None:
    environment = {"SIROCCO_KERNEL_CACHE": str(tmp_path / "cache"), "NUMBA_CPU_NAME": "znver4"}
    use(image, environment)
    assert environment["NUMBA_CPU_NAME"] == "znver4"
    assert not (tmp_path / "cache").exists()


def test_a_cpu_that_no_level_fits_compiles_for_itself(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (image / "levels").write_text("x86-64-v3")
    monkeypatch.setattr(precompiled, "cpu_flags", lambda: V3 - {"avx2"})
    environment = {"SIROCCO_KERNEL_CACHE": str(tmp_path / "cache")}
    use(image, environment)
    assert "NUMBA_CPU_NAME" not in environment


def test_outside_of_an_image_nothing_happens(tmp_path: Path) -> None:
    environment = {"SIROCCO_KERNEL_CACHE": str(tmp_path / "cache")}
    use(tmp_path / "no image", environment)
    assert environment == {"SIROCCO_KERNEL_CACHE": str(tmp_path / "cache")}

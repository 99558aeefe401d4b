"""Certificate files: unusable ones are refused; half of a renewal is ignored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sirocco.model.errors import InvalidArgument
from sirocco.runtime.grpc.tls import Tls, TlsFiles
from tests.support.certificates import Authority


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    authority = Authority(tmp_path / "authority")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    authority.issue(certificate, key, "sirocco")
    return TlsFiles(str(certificate), str(key), str(authority.certificate), "sirocco")


def test_a_renewal_is_noticed_when_it_is_whole(files: TlsFiles, tmp_path: Path) -> None:
    tls = Tls(files)
    assert tls.generation == tls.generation == 1
    other = Authority(tmp_path / "other")
    new, new_key = tmp_path / "new.crt", tmp_path / "new.key"
    other.issue(new, new_key, "sirocco")
    new_key.replace(files.key)
    assert tls.generation == 1
    Path(files.ca).unlink()
    new.replace(files.certificate)
    assert tls.generation == 1
    other.certificate.replace(files.ca)
    assert tls.generation == tls.generation == 2


@pytest.mark.parametrize(
    ("broken", "content"),
    [
        *((name, content) for name in ("certificate", "key", "ca") for content in ("", "SECRET")),
        # Valid ones that do not belong together.
        *(("certificate", "other"), ("key", "other")),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_start(
    files: TlsFiles, tmp_path: Path, broken: str, content: str
) -> None:
    path = Path(getattr(files, broken))
    if content == "other":
        Authority(tmp_path / "b").issue(tmp_path / "b.crt", tmp_path / "b.key", "sirocco")
        (tmp_path / ("b.key" if broken == "key" else "b.crt")).replace(path)
    elif content:
        path.write_text(content)
    else:
        path.unlink()
    with pytest.raises(InvalidArgument) as refused:
        Tls(files)
    assert refused.value.field == "SIROCCO_TLS_CERTIFICATE"
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "usage", "complaint"),
    [
        ("another", "", "mismatch"),
        ("sirocco", "serverAuth", "purpose"),
        ("sirocco", "clientAuth", "purpose"),
        ("sirocco", "serverAuth,clientAuth", None),
    ],
)
def test_services_have_to_believe_each_other(
    tmp_path: Path, name: str, usage: str, complaint: str | None
) -> None:
    authority = Authority(tmp_path / "authority")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    authority.issue(certificate, key, name, usage=usage)
    files = TlsFiles(str(certificate), str(key), str(authority.certificate), "sirocco")
    if complaint is None:
        Tls(files)
        return
    with pytest.raises(InvalidArgument, match=complaint):
        Tls(files)


def test_the_authority_has_to_be_that_of_the_certificate(files: TlsFiles, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    with pytest.raises(InvalidArgument, match="verify failed"):
        Tls(replace(files, ca=str(other.certificate)))

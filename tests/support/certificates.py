"""Creates an authority and its certificates with openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Authority:
    """Signs certificates; its own is at `certificate`.

    Args:
        directory: of its files; each authority needs its own.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.certificate = directory / "ca.crt"
        self._key = directory / "ca.key"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", "/CN=test authority"),
            *("-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def issue(self, certificate: Path, key: Path, *names: str, usage: str = "") -> None:
        """Creates a certificate for names; each file is replaced in one step, as by a renewal.

        `usage`: its only permitted use, such as serverAuth.
        """
        wanted, request = certificate.with_suffix(".new"), certificate.with_suffix(".csr")
        new_key, extensions = key.with_suffix(".newkey"), certificate.with_suffix(".ext")
        lines = ["subjectAltName=" + ",".join(f"DNS:{name}" for name in names)]
        lines += [f"extendedKeyUsage={usage}"] if usage else []
        extensions.write_text("\n".join(lines))
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", f"/CN={names[0]}", "-keyout", str(new_key), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-days", "2", "-in", str(request), "-out", str(wanted)),
            *("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial"),
            *("-extfile", str(extensions)),
        )
        new_key.replace(key)
        wanted.replace(certificate)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)

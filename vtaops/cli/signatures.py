"""Signatures of files, which OpenSSH makes and checks: `ssh-keygen -Y sign` and `-Y verify`.

A signature stands beside its file, as ``FILE.sig``. Whose signatures count says a list in OpenSSH's
format "allowed signers": a name and a public key in each line.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from vtaops.base.errors import UnsupportedError, VTAError, raising
from vtaops.base.files import DOCUMENT, NETWORK, read_file, reason_of

NAMESPACE = "vtaops"
"""What the signatures are for: one made for something else, such as mail, does not count."""

_SECONDS = 30.0


def signed_content(file: Path, signers: Path) -> tuple[bytes, str]:
    """Return the content of a file, and the name of who signed it.

    Raises
    ------
    VTAError
        If a file cannot be read, or the signature is not one of the content by one of `signers`.
    UnsupportedError
        If OpenSSH is not installed.
    """
    signature = file.with_name(f"{file.name}.sig")
    for path in (signature, signers):
        with raising(VTAError, f"cannot read {path}", OSError, describe=reason_of):
            read_file(path, DOCUMENT)
    with raising(VTAError, f"cannot read {file}", OSError, describe=reason_of):
        content = read_file(file, NETWORK)
    options = ("-s", str(signature.absolute()), "-f", str(signers.absolute()))
    names = _ssh_keygen("find-principals", *options).stdout.decode(errors="replace").splitlines()
    for name in names:
        if not _ssh_keygen(
            "verify", *options, "-I", name, "-n", NAMESPACE, read=content
        ).returncode:
            return content, name
    state = (
        f"by {' or '.join(names)} is not of what it holds" if names else f"is by none of {signers}"
    )
    raise VTAError(f"{file} is not signed: its signature {signature.name} {state}")


def _ssh_keygen(way: str, *words: str, read: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    with (
        raising(UnsupportedError, "signatures need OpenSSH 8.2, openssh-client", FileNotFoundError),
        raising(VTAError, "ssh-keygen does not end", subprocess.TimeoutExpired),
    ):
        return subprocess.run(
            ["ssh-keygen", "-Y", way, *words],
            input=read,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )

"""Signatures of files by OpenSSH, which `vtaops verify` checks against a list of signers."""

import json
import shutil
import subprocess

import pytest
from typer.testing import CliRunner

import vtaops
from vtaops import VTAError, cli
from vtaops.errors import UnsupportedError

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs OpenSSH")


def keygen(*words):
    subprocess.run(["ssh-keygen", "-q", *map(str, words)], check=True, capture_output=True)


@pytest.fixture
def signed(tmp_path):
    """A program that a key signed, and lists of signers."""
    for name in ("key", "other"):
        keygen("-t", "ed25519", "-N", "", "-f", tmp_path / name)
        key = (tmp_path / f"{name}.pub").read_text()
        (tmp_path / f"{name}.txt").write_text(f'{name}@example.org namespaces="vtaops" {key}')
    file = tmp_path / "c8.vta"
    vtaops.compile(vtaops.Gemm(m=2, n=2, k=2)).save(file)
    keygen("-Y", "sign", "-f", tmp_path / "key", "-n", "vtaops", file)
    return file


def verified(file, signers, *more):
    words = ["verify", str(file), "--signers", str(signers), *more]
    done = CliRunner().invoke(cli.app, words)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_a_signature_is_checked_before_the_program(signed):
    signers = signed.with_name("key.txt")
    text = verified(signed, signers)
    assert "signed by key@example.org" in text
    assert "instructions verified" in text
    assert json.loads(verified(signed, signers, "--json"))["signer"] == "key@example.org"


@pytest.mark.parametrize("change", [lambda data: data + b"\0", lambda data: b"", bytes.swapcase])
def test_other_content_is_refused(signed, change):
    signed.write_bytes(change(signed.read_bytes()))
    with pytest.raises(VTAError, match=r"c8.vta is not signed: .* is not of what it holds"):
        verified(signed, signed.with_name("key.txt"))


def test_other_signers_purposes_and_texts_are_refused(signed):
    with pytest.raises(VTAError, match=r"is not signed: its signature c8.vta.sig is by none of"):
        verified(signed, signed.with_name("other.txt"))
    signature = signed.with_name("c8.vta.sig")
    signature.unlink()
    with pytest.raises(VTAError, match=r"cannot read .*c8.vta.sig: No such file"):
        verified(signed, signed.with_name("key.txt"))
    keygen("-Y", "sign", "-f", signed.with_name("key"), "-n", "file", signed)
    with pytest.raises(VTAError, match="is not signed"):
        verified(signed, signed.with_name("key.txt"))
    signature.write_text("no signature")
    with pytest.raises(VTAError, match="is not signed"):
        verified(signed, signed.with_name("key.txt"))


def test_any_file_may_be_signed(signed):
    file = signed.with_name("-n vta.bit")
    file.write_bytes(b"bits")
    keygen("-Y", "sign", "-f", signed.with_name("key"), "-n", "vtaops", file)
    words = verified(file, signed.with_name("key.txt"), "--json")
    assert json.loads(words) == {"verified": True, "signer": "key@example.org"}


def test_without_openssh_it_is_said(signed, monkeypatch):
    monkeypatch.setenv("PATH", str(signed.parent))
    with pytest.raises(UnsupportedError, match="OpenSSH"):
        verified(signed, signed.with_name("key.txt"))

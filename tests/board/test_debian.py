"""The recipe of a server under Debian, with a stand-in for the network; `debian/run.sh` runs it."""

import hashlib
import re
import shutil
import subprocess

import pytest

from vtaops.base.data import data_directory

RECIPE = data_directory("examples") / "debian"
LISTED = re.compile(
    r"[0-9a-f]{64}  debian(?:-security)?/pool/\S+/([a-z0-9.+-]+)_[^/]*_(armhf|arm64|all)\.deb"
)
WHEEL = "vtaops-1-py3-none-any.whl"
CURL = """#!/bin/sh
# A package's content is its name; the mirror has lost what is old.
while [ $# -gt 1 ]; do [ "$1" = -o ] && file=$2; shift; done
echo "$1" >> asked
case $1 in http://deb.debian.org/*old*) exit 22 ;; esac
printf %s "${1##*/}" > "$file"
"""


@pytest.fixture
def run(tmp_path):
    """Run a copy of the recipe, whose list of packages is short."""
    shutil.copytree(RECIPE, tmp_path / "recipe")
    names = ("new_1_armhf.deb", "old_1_armhf.deb")
    lines = [f"{hashlib.sha256(name.encode()).hexdigest()}  debian/pool/{name}\n" for name in names]
    (tmp_path / "recipe/armhf.txt").write_text("".join(lines))
    for name, text in ((WHEEL, ""), ("board.secret", "00"), ("bin/curl", CURL)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "bin/curl").chmod(0o755)

    def call(*arguments, **variables):
        return subprocess.run(
            ["sh", "recipe/recipe.sh", *arguments],
            capture_output=True, text=True, check=False, cwd=tmp_path,
            env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin", **variables},
        )  # fmt: skip

    return call


def test_a_folder_has_what_the_board_needs(run, tmp_path):
    memory = {"CONFIG": "pynq", "MEMORY": "0x1c000000+0x4000000"}
    made = run("armhf", "out", WHEEL, "board.secret", **memory)
    assert made.returncode == 0, made.stderr
    asked = (tmp_path / "out/asked").read_text().split()
    assert [place.partition("/debian/")[0] for place in asked] == [
        *["http://deb.debian.org"] * 2,
        "https://snapshot.debian.org/archive",
    ]
    assert re.search(r"/debian/\d{8}T\d{6}Z/pool/old_1_armhf\.deb$", asked[2])
    service = (tmp_path / "out/vtaops.service").read_text()
    assert "serve --memory 0x1c000000+0x4000000 --config pynq --register-map rtl" in service
    assert "mem=448M" in (tmp_path / "out/boot.txt").read_text()
    assert (tmp_path / "out/secret").stat().st_mode & 0o777 == 0o600
    whole = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path / "out", capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    assert whole.count(": OK") == 5


def test_another_content_is_refused(run, tmp_path):
    text = CURL.replace("printf %s", "printf x%s")
    (tmp_path / "bin/curl").write_text(text)
    made = run("armhf", "out", WHEEL, "board.secret")
    assert made.returncode == 75
    assert "new_1_armhf.deb: not found with its checksum" in made.stderr
    assert not (tmp_path / "out/SHA256SUMS").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "see the head of this file"),
        (("riscv64", "out", WHEEL, "board.secret"), "must be armhf or arm64"),
        (("armhf", "out", WHEEL), "give ARCH FOLDER WHEEL SECRET"),
        (("armhf", "out", "vtaops-1-cp311-linux.whl", "board.secret"), "py3-none-any.whl"),
    ],
)
def test_a_wrong_call_says_what_is_right(run, tmp_path, arguments, told):
    made = run(*arguments)
    assert made.returncode == 1
    assert told in made.stderr
    assert not (tmp_path / "out").exists()


def test_both_architectures_have_the_same_packages():
    names = {}
    for arch in ("armhf", "arm64"):
        lines = (RECIPE / f"{arch}.txt").read_text().splitlines()
        found = [LISTED.fullmatch(line) for line in lines]
        assert all(found)
        assert {match[2] for match in found} == {arch, "all"}
        names[arch] = {match[1] for match in found}
    assert names["armhf"] == names["arm64"] > {"python3-numpy", "python3.11", "libc6"}

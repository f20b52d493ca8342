"""Which versions of apache-tvm-ffi work with which of apache-tvm: the matrix of docs/ffi.md.

    python -m benchmarks ffi_pairs                 # the installed TVM, the newest ffi of PyPI
    python -m benchmarks ffi_pairs --ffi 0.1.14.post1 --ffi 0.1.15.post2 --tvm 0.27.0.post1

Each version is downloaded into a folder that is put in front of the installed packages; each case
runs in a process of its own, since what fails takes the process with it. Prints the table of the
document; exit code 3 if the newest ffi works, so that the pin can be moved.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.options import Json, markdown_table, write_json
from trials.ffi_pairs import CASES, try_pair


def download(requirement: str, folder: Path) -> tuple[str, str]:
    """Install one package without its dependencies; return where, and its version."""
    target = folder / requirement.replace("==", "-")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target)]
    subprocess.run([*command, requirement], check=True)
    name = requirement.split("==")[0].replace("-", "_")
    info = next(target.glob(f"{name}-*.dist-info"))
    return str(target), info.name.removeprefix(f"{name}-").removesuffix(".dist-info")


def main(
    tvm: Annotated[list[str] | None, typer.Option(help="Default: the installed one.")] = None,
    ffi: Annotated[list[str] | None, typer.Option(help="Default: the newest of PyPI.")] = None,
    json_file: Json = None,
) -> int:
    """Try the pairs and print them."""
    from importlib.metadata import version

    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tvms = [download(f"apache-tvm=={v}", folder) for v in (tvm or [])] or [
            ("", version("apache-tvm"))
        ]
        wanted = [f"apache-tvm-ffi=={v}" for v in (ffi or [])] or ["apache-tvm-ffi"]
        ffis = [download(requirement, folder) for requirement in wanted]
        for tvm_path, tvm_version in tvms:
            for ffi_path, ffi_version in ffis:
                found = try_pair([path for path in (tvm_path, ffi_path) if path])
                rows.append({"apache-tvm": tvm_version, "apache-tvm-ffi": ffi_version, **found})
                print(*rows[-1].values(), file=sys.stderr, flush=True)
    print(markdown_table([*rows[0]], [[*row.values()] for row in rows], len(rows[0])))
    write_json(json_file, rows)
    newest = not (ffi or []) and rows[-1]["apache-tvm-ffi"] != version("apache-tvm-ffi")
    if newest and all(rows[-1][case] == "works" for case in CASES):
        print("the newest apache-tvm-ffi works: move the pin of pyproject.toml (docs/ffi.md)")
        return 3
    return 0

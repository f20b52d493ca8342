"""Try the wheel on every Python at hand: twelve commands, with the newest and the lowest versions.

    python tests/wheel/pythons.py .wheel/wheel [--table docs/ffi.md]

For each Python that `requires-python` admits, two environments outside the clone: the newest
versions of what the package asks for, and the lowest ones that pyproject.toml allows and that have
a wheel for this Python, both as `python tasks.py lock` found them, by their hashes. In each, the
commands of a first hour run one after the other: the first as users type it, the others in one
process, because most of their time would be imports. Prints a table; exits with 1 if a command
failed, with its output. A Python that this machine lacks, or that
TVM has no wheel for, has a row that says so. `uv` finds the Pythons, also those of pyenv.

PYNQ's images have Python 3.10 and NumPy 1.21: there, the pure wheel serves a client of this
environment, with the stub of PYNQ of `tests/board/armv7`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tasks import PYTHONS  # noqa: E402

BOARD = ROOT / "tests" / "board" / "armv7"
UV = (sys.executable, "-m", "uv")
PIP = (sys.executable, "-m", "pip")
LOCKS = {"newest": "newest.txt", "lowest": "lowest-{}.txt"}
SHOWN = ("numpy", "onnxruntime")
COMMANDS = (
    "--version",
    "run conv2d --layer resnet18.C8",
    "run op MaxPool2d(channels=16,height=8,width=8,kernel=2)",
    "demo -o demo",
    "quantize demo/glyphs.onnx --calibration demo/calibration.npz -o glyphs.q.onnx",
    "plan glyphs.q.onnx",
    "compile glyphs.q.onnx -o glyphs.vtam",
    "run glyphs.vtam --input demo/image.npy",
    "verify glyphs.vtam",
    "prove glyphs.vtam",
    "report profile glyphs.vtam",
    "export glyphs.vtam -o bundle",
)


IN_TURN = """
import shlex, sys
from vtaops.__main__ import main
for command in sys.argv[1:]:
    sys.argv[1:] = shlex.split(command)
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"vtaops {command} ends with {end.code}")
"""
"""Runs commands until one fails; each needs files of those before it."""


def tool(*arguments, **options):
    """Run a command; return what it printed."""
    done = subprocess.run(arguments, check=False, capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError(f"$ {' '.join(arguments)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def interpreters():
    """Return the path of each Python at hand by its version, `3.12`; pyenv's, too."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders = [*map(str, sorted(pyenv.glob("*/bin"))), os.environ["PATH"]]
    listed = tool(
        *(*UV, "python", "list", "--only-installed", "--output-format", "json"),
        env={**os.environ, "PATH": os.pathsep.join(folders)},
    )
    found = {}
    for python in json.loads(listed):
        parts = python["version_parts"]
        if python["implementation"] == "cpython":
            found.setdefault(f"{parts['major']}.{parts['minor']}", python["path"])
    return found


def install(folder, python, wheel, lock):
    """Make an environment with the wheel; return the versions of the packages in it."""
    tool(*UV, "venv", "--quiet", "--python", python, str(folder))
    here = ("--python", str(folder), "--quiet")
    hashes = ("--require-hashes", "--only-binary", ":all:", "-r", str(ROOT / ".ci" / lock))
    tool(*UV, "pip", "install", *here, *hashes)
    tool(*UV, "pip", "install", *here, "--no-deps", wheel)
    listed = json.loads(tool(*UV, "pip", "list", *here, "--format", "json"))
    return {package["name"]: package["version"] for package in listed}


def attempt(case):
    """Try one Python with one choice of versions; return its row and what failed."""
    version, python, resolution, wheel = case
    if python is None:
        return [version, resolution, "not tried: this machine has no such Python"], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            versions = install(folder / "venv", python, wheel, LOCKS[resolution].format(version))
        except RuntimeError as error:
            if "apache-tvm" not in str(error):
                return [version, resolution, "cannot be installed"], [str(error)]
            return [version, resolution, "not tried: TVM has no wheel for it"], []
        shown = ", ".join(f"{name} {versions[name]}" for name in SHOWN)
        where = {"cwd": folder, "env": {**os.environ, "XDG_CACHE_HOME": temporary}}
        own, (first, *others), failures = folder / "venv" / "bin", COMMANDS, []
        try:
            tool(str(own / "vtaops"), first, **where)
            tool(str(own / "python"), "-c", IN_TURN, *others, **where)
        except RuntimeError as error:
            failures.append(f"Python {version}, {resolution} versions\n{error}")
        passed = "not all" if failures else len(COMMANDS)
        return [version, resolution, shown, f"{passed} of {len(COMMANDS)}"], failures


def attempt_board(python):
    """Try a board's part of the package on its Python; return a row and what failed."""
    row = ["3.10", "of a PYNQ image", "numpy 1.21.6"]
    if python is None:
        return [*row[:2], "not tried: this machine has no such Python"], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            serve_client(folder, python)
            return [*row, "a board's server and a client"], []
        except RuntimeError as error:
            return [*row, "failed"], [f"Python 3.10, as on a board\n{error}"]


def serve_client(folder, python):
    """Install the pure wheel as docs/board.md does, start its server, and run a client."""
    pure = ("cmake=false", "py-api=py3", "platlib=false")
    settings = [f"--config-setting=wheel.{setting}" for setting in pure]
    hashes = ("--build-constraints", str(ROOT / ".ci" / "build.txt"), "--require-hashes")
    tool(
        *UV,
        "build",
        "--quiet",
        "--wheel",
        *hashes,
        *settings,
        "-o",
        str(folder / "pure"),
        str(ROOT),
    )
    tool(*UV, "venv", "--quiet", "--python", python, str(folder / "venv"))
    board = str(folder / "venv" / "bin" / "python")
    numpy = ("--require-hashes", "-r", str(ROOT / ".ci" / "board.txt"))
    tool(*UV, "pip", "install", "--quiet", "--python", board, *numpy)
    tool(
        *(*PIP, "--python", board, "install", "-q", "--no-deps", "--ignore-requires-python"),
        *map(str, (folder / "pure").glob("*.whl")),
    )
    stub = {**os.environ, "PYTHONPATH": str(BOARD)}
    server = subprocess.Popen(
        [board, "-m", "vtaops.board", "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=stub,
    )
    with server:
        try:
            lines = iter(server.stdout.readline, "")
            address = next((line for line in lines if "pynq://" in line), None)
            if address is None:
                raise RuntimeError("the server ended before it served")
            address = address[address.index("pynq://") :].split()[0]
            here = {**os.environ, "PYTHONPATH": str(ROOT)}
            tool(sys.executable, str(BOARD / "client.py"), address, env=here)
        finally:
            server.terminate()


def table(rows):
    """Return rows as Markdown."""
    head = ["Python", "versions", "of", "commands that ran"]
    lines = [head, ["---"] * len(head), *(row + [""] * (len(head) - len(row)) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the wheel lies")
    parser.add_argument("--table", type=Path, help="a document whose table is written anew")
    options = parser.parse_args()
    (wheel,) = options.folder.resolve().glob("vtaops-*-abi3-*.whl")
    at_hand = interpreters()
    cases = [
        (version, at_hand.get(version), resolution, wheel)
        for version in PYTHONS
        for resolution in LOCKS
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        board = pool.submit(attempt_board, at_hand.get("3.10"))
        tried = [*pool.map(attempt, cases), board.result()]
    text = table([row for row, _ in tried])
    print(text)
    if options.table:
        before, mark, _ = options.table.read_text().partition("<!-- table -->\n")
        options.table.write_text(f"{before}{mark}{text}\n")
    failures = [failure for _, failed in tried for failure in failed]
    print(*failures, sep="\n\n", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

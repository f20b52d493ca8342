"""The functional simulator under address and undefined-behaviour sanitizers, with hostile words."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vtaops import HardwareConfig
from vtaops.machine.isa import Encoding
from vtaops.runtime.fsim import _sizes, _slots

SOURCES = Path(__file__).parents[2] / "sim" / "fsim"
FILES = ("dram", "encoding", "engine", "executor", "kernels", "kernels_checked")
FILES += ("kernels_generic", "scratchpads")
OPTIONS = ("-std=c++17", "-O0", "-g0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
PROGRAMS = 1000


def describe(config: HardwareConfig) -> str:
    """Return geometry and encoding as the fuzzer reads them."""
    lines = [" ".join(map(str, _sizes(config).values()))]
    for kind, slots in _slots(Encoding.of(config)).items():
        for name, (offset, width, signed) in slots.items():
            lines.append(f"{kind} {name} {offset} {width} {int(signed)}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sanitized")
    if COMPILER is None or not (SOURCES / "engine.cpp").is_file():
        pytest.skip("needs a C++ compiler and the sources of fsim")
    sources = [Path(__file__).with_name("fsim_fuzz.cpp"), *(SOURCES / f"{f}.cpp" for f in FILES)]

    def compiled(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        command = [COMPILER, *OPTIONS, f"-I{SOURCES}", "-c", source, "-o", target]
        subprocess.run(command, check=True)
        return target

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sources))
    linked = subprocess.run(
        [COMPILER, *OPTIONS, *objects, "-o", folder / "fuzz", "-lpthread"],
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find" in linked.stderr and "san" in linked.stderr:
        pytest.skip("the compiler comes without the libraries of the sanitizers")
    assert linked.returncode == 0, linked.stderr
    return folder / "fuzz"


@pytest.mark.parametrize("name", ["tiny", "4x8_i8w8a32_15_16_16_18", "pynq_ext"])
def test_hostile_words_touch_no_memory_but_their_own(fuzzer, name, tmp_path):
    source = tmp_path / "encoding.txt"
    source.write_text(describe(HardwareConfig.load(name)))
    done = subprocess.run(
        [fuzzer, source, str(PROGRAMS), "18"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    finished = int(done.stdout.split()[0])
    assert 10 < finished < PROGRAMS - 10  # both kinds occur

"""The functional simulator with sanitizers, built apart from Python, and hostile words for it."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

from trials.campaign import Campaign, Result, result
from vtaops import HardwareConfig
from vtaops.base.cache import cache_directory, get_or_build
from vtaops.machine.isa import Encoding
from vtaops.runtime.fsim import available_kernels, sizes_of, slots_of

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "sim" / "fsim"
FUZZER = ROOT / "tests" / "runtime" / "fsim_fuzz.cpp"
FILES = ("dram", "encoding", "engine", "executor", "kernels", "kernels_checked")
FILES += ("kernels_generic", "scratchpads")
OPTIONS = ("-std=c++17", "-g0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CONFIGS = ("tiny", "4x8_i8w8a32_15_16_16_18", "pynq_ext")

NO_TOOLS = "needs a C++ compiler, the libraries of its sanitizers and the sources of fsim"


def build(folder: Path) -> Path | None:
    """Return the fuzzer, with all kernels of this kind of CPU; None where it cannot be built.

    Its objects are kept in the cache: compiling them takes half a minute.
    """
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None or not (SOURCES / "engine.cpp").is_file():
        return None
    files, options = FILES, (*OPTIONS, f"-I{SOURCES}")
    if platform.machine() in ("x86_64", "AMD64"):
        files = (*files, "kernels_avx2", "kernels_avxvnni", "kernels_avx512vnni")
        options = (*options, "-DFSIM_X86")
    sources = [FUZZER, *(SOURCES / f"{name}.cpp" for name in files)]

    def compiled(source: Path, target: Path) -> Path:
        command = [compiler, *options, "-O0", "-c", source, "-o", target / f"{source.stem}.o"]
        subprocess.run(command, check=True)
        return target / f"{source.stem}.o"

    def objects(target: Path) -> Path:
        with ThreadPoolExecutor(2) as pool:
            parts = [*pool.map(partial(compiled, target=target), sources)]
        subprocess.run(["ld", "-r", "-o", target / "fuzz.o", *parts], check=True)
        return target / "fuzz.o"

    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    read = b"".join(path.read_bytes() for path in [*sources, *sorted(SOURCES.glob("*.hpp"))])
    key = hashlib.sha256(version + " ".join(OPTIONS).encode() + read).hexdigest()[:12]
    linked = subprocess.run(
        [compiler, *OPTIONS, get_or_build(cache_directory("c") / f"fuzz-{key}.o", objects),
         "-o", folder / "fuzz", "-lpthread"],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    if "cannot find" in linked.stderr and "san" in linked.stderr:
        return None
    linked.check_returncode()
    return folder / "fuzz"


def launch(fuzzer: Path, name: str, count: int, seed: int) -> tuple[int, str, str]:
    """Launch hostile programs of a configuration, one after the other on each kernel of this CPU.

    Returns how many finished, the kernels, and what a sanitizer found, which is empty if it is
    nothing.
    """
    source = fuzzer.with_name(f"{name}.txt")
    source.write_text(_described(HardwareConfig.load(name)))
    done = subprocess.run(
        [fuzzer, source, str(count), str(seed)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return 0, "", done.stderr[-3000:] or f"exit code {done.returncode}"
    return int(done.stdout.split()[0]), done.stdout.partition("on ")[2].strip(), ""


def _described(config: HardwareConfig) -> str:
    """Return geometry and encoding as the fuzzer reads them."""
    lines = [" ".join(map(str, sizes_of(config).values()))]
    for kind, slots in slots_of(Encoding.of(config)).items():
        for name, (offset, width, signed) in slots.items():
            lines.append(f"{kind} {name} {offset} {width} {int(signed)}")
    return "\n".join(lines) + "\n"


PORTION = 2500
"""Launches of a case, all kernels in turn."""

_fuzzer = cache(lambda: build(Path(tempfile.mkdtemp())))


def cases(count: int) -> list[str]:
    """Return the portions for so many launches of each kernel."""
    kernels = 1 + len(available_kernels())  # and the checked one
    portions = -(-count * kernels // (PORTION * len(CONFIGS)))
    return [f"{name}/{number}" for number in range(portions) for name in CONFIGS]


def trial(case: str) -> Result:
    """Launch one portion of hostile programs."""
    fuzzer = _fuzzer()
    if fuzzer is None:
        raise RuntimeError(NO_TOOLS)
    name, _, number = case.rpartition("/")
    finished, _, found = launch(fuzzer, name, PORTION, PORTION * int(number))
    return result(name, found, launches=PORTION, finished=finished)


CAMPAIGN = Campaign(cases, trial, count=100_000)

"""Every C snippet of the documents, compiled against a fresh bundle and run under sanitizers.

A snippet has a `main`, or defines a function that a harness below calls. It may not be left out.
"""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import vtaops
from trials import c_bundles
from vtaops.cli import app

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^ *```c\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SNIPPETS = [
    pytest.param(code, id=f"{path.name}:{number}")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    for number, code in enumerate(FENCE.findall(path.read_text()))
]
LINKED = "-fsanitize=address,undefined"
SANITIZED = f"-O0 -g {LINKED} -fno-sanitize-recover=all"

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "g++", "make"))), reason="no gcc, no g++ or no make"
)

AT_ADDRESSES = """
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include "hardware.h"
#include "model.h"

extern int open_vta(vta_device *);
static float image[VTA_INPUT_0_NBYTES / sizeof(float)];
static float scores[VTA_OUTPUT_0_NBYTES / sizeof(float)];

uint32_t read_my_timer(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint32_t)(1000 * now.tv_sec + now.tv_nsec / 1000000);
}

static int mapped(int memory, size_t at, size_t nbytes) {
  const int how = MAP_SHARED | MAP_FIXED;
  return mmap((void *)at, nbytes, PROT_READ | PROT_WRITE, how, memory, (off_t)at) == (void *)at;
}

int main(int count, char **words) {
  const void *const inputs[] = {image};
  void *const outputs[] = {scores};
  vta_device device;
  FILE *file = fopen(words[1], "rb");
  int memory = open("memory", O_RDWR);
  if (count != 2 || fread(image, sizeof image, 1, file) != 1) return 3;
  fclose(file);
  if (!mapped(memory, VTA_REGISTERS_AT, 4 * VTA_REGISTER_PAGE)) return 4;
  if (!mapped(memory, 0x1e000000, 32u << 20)) return 5;
  if (open_vta(&device)) return 6;
  if (vta_model_run(&device, inputs, outputs)) return 7;
  size_t i, best = 0;
  for (i = 1; i < sizeof scores / sizeof *scores; ++i) best = scores[i] > scores[best] ? i : best;
  printf("class %lu, score %.3f\\n", (unsigned long)best, scores[best]);
  return 0;
}
"""
IN_TURN = """
#include <stdio.h>
#include "model.h"
#include "vta_fsim.h"

extern int run_all(const vta_device *, const void *const *const *, void *const *const *, int);
static float images[5][VTA_INPUT_0_NBYTES / sizeof(float)];
static float scores[5][VTA_OUTPUT_0_NBYTES / sizeof(float)];

int main(int count, char **words) {
  const void *inputs[5][1];
  void *outputs[5][1];
  const void *const *from[5];
  void *const *to[5];
  vta_device device;
  FILE *file = fopen(words[1], "rb");
  size_t i, best = 0;
  if (count != 2 || fread(images[3], sizeof *images, 1, file) != 1) return 3;
  fclose(file);
  for (i = 0; i < 5; ++i) {
    inputs[i][0] = images[i];
    outputs[i][0] = scores[i];
    from[i] = inputs[i];
    to[i] = outputs[i];
  }
  if (vta_fsim_open(&device) || run_all(&device, from, to, 5)) return 4;
  vta_fsim_close(&device);
  for (i = 1; i < sizeof *scores / sizeof **scores; ++i)
    best = scores[3][i] > scores[3][best] ? i : best;
  printf("class %lu, score %.3f\\n", (unsigned long)best, scores[3][best]);
  return 0;
}
"""
HARNESSES = {"open_vta": AT_ADDRESSES, "run_all": IN_TURN}
"""By the function that a snippet defines: a program that calls it."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The bundle of the page's first commands, built with sanitizers, and its model."""
    folder = tmp_path_factory.mktemp("bundle")
    model = str(folder / "glyphs.vtam")
    for words in (["demo", "-o", str(folder)], ["export", model, "-o", str(folder / "c")]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    for target in ("network-fsim", "libvta.a"):
        c_bundles.make(folder / "c", target, CFLAGS=SANITIZED, CXXFLAGS="-O0", LDFLAGS=LINKED)
    image = np.load(folder / "image.npy")
    image.tofile(folder / "c" / "image.bin")
    compiled = vtaops.load_model(model)
    return folder / "c", compiled, compiled.run(image)


def build(folder, *sources):
    """Compile sources strictly and link them with all objects of a bundle but its `main`."""
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I."]
    for source in sources:
        command = ["gcc", *SANITIZED.split(), *strict, "-c", source]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    own = [str(Path(source).with_suffix(".o")) for source in sources]
    parts = {str(path.relative_to(folder)) for path in folder.rglob("*.o")}
    parts -= {"main.o", "snippet.o", "harness.o"}
    command = ["g++", *SANITIZED.split(), "-o", "snippet", *own, *sorted(parts)]
    done = subprocess.run([*command, "-pthread"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", SNIPPETS)
def test_a_snippet_runs_and_computes_what_python_does(code, bundle):
    folder, model, scores = bundle
    (folder / "snippet.c").write_text(code)
    sources = ["snippet.c"]
    if not re.search(r"\bint main\(", code):
        called = [name for name in HARNESSES if re.search(rf"\b{name}\(", code)]
        assert called, "no main, and no function that a harness calls"
        (folder / "harness.c").write_text(HARNESSES[called[0]])
        sources.append("harness.c")
    build(folder, *sources)
    (folder / "memory").unlink(missing_ok=True)
    with c_bundles.FileBoard.of_dev_mem(model, folder / "memory", 0x1E000000, 32 << 20):
        done = subprocess.run(
            ["./snippet", "image.bin"], cwd=folder, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    best = scores.argmax()
    assert done.stdout == f"class {best}, score {scores.reshape(-1)[best]:.3f}\n"


def test_a_buffer_that_is_too_small_would_be_found(bundle):
    folder, _, _ = bundle
    code = SNIPPETS[0].values[0].replace("scores[VTA_OUTPUT_0_NBYTES / sizeof(float)]", "scores[9]")
    (folder / "snippet.c").write_text(code)
    build(folder, "snippet.c")
    done = subprocess.run(
        ["./snippet", "image.bin"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0
    assert "AddressSanitizer: global-buffer-overflow" in done.stderr


def test_there_are_snippets():
    assert len(SNIPPETS) >= 2

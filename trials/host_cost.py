"""What a run of a network costs beside its launches: instructions of the host, traffic of a board.

Instructions are those of the exported C (``Model.export_c``) on an emulated 32-bit ARM, launches
and the copies into the device's memory included as calls that do only that. Traffic is what the
driver of a board (`vtaops.board.pynq`) does to a virtual one: register accesses and bytes that
go between cache and DRAM.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np

from vtaops.board.bitfile import blank_bit_file
from vtaops.board.pynq import Accelerator, PynqDevice
from vtaops.board.virtual import VirtualBoard, VirtualBuffer, VirtualMmio
from vtaops.hardware.performance import TsimPerformance
from vtaops.hardware.registers import RegisterMap, RtlRegisters
from vtaops.model import Model
from vtaops.runtime import ResidentPrograms

COMPILER, EMULATOR = "arm-linux-gnueabihf-gcc", "qemu-arm"
MAIN = """
#include <stdlib.h>
#include <string.h>
#include "hardware.h"
#include "model.h"
static uint8_t memory[MEMORY];
static uint32_t used;
static int alloc(void *c, uint32_t n, uint32_t *address) {
  (void)c;
  *address = used += 4096;
  used += n + 4095 & ~4095u;
  return used <= sizeof memory ? VTA_OK : VTA_ERROR_MEMORY;
}
static int give(void *c, uint32_t at, const void *data, uint32_t n) {
  (void)c;
  memcpy(memory + at, data, n);
  return VTA_OK;
}
static int take(void *c, uint32_t at, void *data, uint32_t n) {
  (void)c;
  memcpy(data, memory + at, n);
  return VTA_OK;
}
static int launch(void *c, uint32_t at, uint32_t n) { (void)c, (void)at, (void)n; return VTA_OK; }
static int ready(void *c, uint32_t n) { (void)c, (void)n; return VTA_OK; }
int main(int count, char **words) {
  static const vta_tensor taken[] = VTA_INPUT_TABLE, made[] = VTA_OUTPUT_TABLE;
  const vta_device device = {0, VTA_CONFIG, alloc, give, take, launch, ready};
  const void *inputs[VTA_INPUTS];
  void *outputs[VTA_OUTPUTS];
  int i, n = atoi(words[count - 1]);
  for (i = 0; i < VTA_INPUTS; ++i) inputs[i] = calloc(taken[i].nbytes, 1);
  for (i = 0; i < VTA_OUTPUTS; ++i) outputs[i] = calloc(made[i].nbytes, 1);
  if (vta_model_init(&device)) return 1;
  while (n--)
    if (vta_model_run(&device, inputs, outputs)) return 2;
  return 0;
}
"""


def armv7_instructions(model: Model) -> int | None:
    """Return the instructions of a run but for its launches; None without compiler or emulator."""
    if not (shutil.which(COMPILER) and shutil.which(EMULATOR)):
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle = model.export_c(folder)
        (folder / "count.c").write_text(MAIN)
        sources = ("count.c", "model.c", "model_blob.S", "vta.c", "vta_steps.c", "vta_products.c")
        memory = f"-DMEMORY={2 * bundle.device_nbytes + (1 << 20)}"
        command = [COMPILER, "-O3", "-static", "-ffp-contract=off", "-I.", memory, *sources]
        subprocess.run([*command, "-o", "count", "-lm"], cwd=folder, check=True)
        one, two = (_executed(folder / "count", runs) for runs in (1, 2))
    return two - one


def _executed(program: Path, runs: int) -> int:
    """Return the instructions that a program executes: the emulator tells of each."""
    options = ("-singlestep", "-d", "exec,nochain", "-D", "/dev/stdout")
    command = [EMULATOR, *options, str(program), str(runs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        count = 0
        while piece := running.stdout.read(1 << 20):
            count += piece.count(b"Trace ")
    if running.returncode:
        raise AssertionError(f"the counted program ended with {running.returncode}")
    return count


class _Traffic:
    """Counts what a driver does to a virtual board."""

    def __init__(self) -> None:
        self.reads = self.writes = self.to_dram = self.from_dram = 0

    def counting(self, name: str, method, amount):
        def counted(itself, *arguments):
            setattr(self, name, getattr(self, name) + amount(itself))
            return method(itself, *arguments)

        return counted


def board_traffic(model: Model, arrays: Sequence[np.ndarray]) -> dict[str, int]:
    """Return register accesses and cache traffic of a run, its programs in the board's memory.

    Reads that wait for the end of a launch are left out but for one a launch, and those of the
    counters of performance, which the runtime in C does not read.
    """
    board = VirtualBoard(model.config, RegisterMap.RTL)
    board.program(blank_bit_file(model.config.board.device).to_bytes())
    accelerator = Accelerator(model.config, RegisterMap.RTL, interface=board)
    accelerator.attach()
    traffic = _Traffic()
    wrapped = (
        (VirtualMmio, "read", "reads", lambda _: 1),
        (VirtualMmio, "write", "writes", lambda _: 1),
        (VirtualBuffer, "flush", "to_dram", lambda buffer: buffer.nbytes),
        (VirtualBuffer, "invalidate", "from_dram", lambda buffer: buffer.nbytes),
    )
    with PynqDevice(accelerator) as device, ResidentPrograms(device) as residents:
        session = type("Board", (), {"residents": residents})()
        model.run(*arrays, session=session)
        patches = [
            patch.object(kind, method, traffic.counting(name, getattr(kind, method), amount))
            for kind, method, name, amount in wrapped
        ]
        patches.append(patch.object(RtlRegisters, "performance", TsimPerformance))
        for each in patches:
            each.start()
        try:
            model.run(*arrays, session=session)
        finally:
            for each in patches:
                each.stop()
    return {
        "register_writes": traffic.writes,
        "register_reads": traffic.reads,
        "flushed_bytes": traffic.to_dram,
        "invalidated_bytes": traffic.from_dram,
    }

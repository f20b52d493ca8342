"""The end of the interpreter while threads are inside of native code."""

import subprocess
import sys

PROGRAM = """
import threading, time
from vtaops import HardwareConfig
from vtaops.machine.config import Memory
from vtaops.machine.isa import Gemm
from vtaops.program import ProgramBuilder, Role
from vtaops.runtime import Fsim, LoadedProgram

builder = ProgramBuilder(HardwareConfig.load("tiny"))
builder.tiles("out", Role.OUTPUT, 1)
builder.micro_ops((0, 0, 0))
builder.load_micro_ops(0, 1)
most = (1 << 14) - 1
for _ in range(200):
    builder.add(Gemm(reset=1, uop_begin=0, uop_end=1, iter_out=most, iter_in=most))
builder.nop(Memory.ACC, push_next=1)
builder.store(0, 0, 0, 1, pop_prev=1, push_prev=1)
builder.finish(pop_next=1)
loaded = LoadedProgram(builder.build(), Fsim("tiny"))
began = threading.Event()

def run():
    began.set()
    loaded.run(timeout=60.0)

threading.Thread(target=run, daemon=True).start()
began.wait()
time.sleep(0.05)  # into the launch, which takes minutes
print("ends")
"""


def test_an_interpreter_ends_while_a_thread_is_inside_a_launch():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")

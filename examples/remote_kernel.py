"""A CPU kernel on another machine: compiled here, sent over TVM's RPC, checked and timed there.

    python examples/remote_kernel.py                           # a server on this machine
    python -m tvm.exec.rpc_server --host 0.0.0.0 --port 9090   # on the other machine, then here:
    python examples/remote_kernel.py 192.168.2.99 9090 cortex-a72 aarch64-linux-gnu

The other machine needs TVM's runtime only. TVM's RPC has no authentication: use trusted networks.
"""

import argparse
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import tvm
from tvm import rpc

from vtaops.base.optional import install_command
from vtaops.kernels.build import compile_schedule
from vtaops.kernels.cpu.schedule import schedule
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops import MatmulOp
from vtaops.kernels.timing import random_arrays


def main(arguments: list[str] | None = None) -> None:
    """Compile, send, run, compare, time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("host", nargs="?", help="default: a server on this machine")
    parser.add_argument("port", nargs="?", type=int, default=9090)
    parser.add_argument("mcpu", nargs="?", default="cortex-a72", help="as LLVM calls it")
    parser.add_argument("triple", nargs="?", default="aarch64-linux-gnu", help="has a TRIPLE-gcc")
    chosen = parser.parse_args(arguments)
    if chosen.host:
        target = CpuTarget(chosen.mcpu, ("neon",), (), 4, chosen.triple)
        compile_and_run(target, chosen.host, chosen.port, cc=f"{chosen.triple}-gcc")
        return
    if find_spec("cloudpickle") is None:
        raise SystemExit(f"a server on this machine needs more: {install_command('tune')}")
    server = rpc.Server("127.0.0.1", 9190, 9290)
    try:
        compile_and_run(CpuTarget.detect(), "127.0.0.1", server.port)
    finally:
        server.terminate()


def compile_and_run(target: CpuTarget, host: str, port: int, **linker: str) -> None:
    """Run a matrix product on the other machine."""
    op = MatmulOp(256, 256, 256)
    executable = compile_schedule(schedule(op, target), target.tvm)
    remote = rpc.connect(host, port)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "matmul.so"
        executable.export_library(str(library), **linker)
        remote.upload(bytearray(library.read_bytes()), "matmul.so")
    kernel = remote.load_module("matmul.so")

    a, b, c = random_arrays(op)
    device = remote.cpu()
    arrays = [tvm.runtime.tensor(array, device) for array in (a, b, c)]
    kernel["main"](*arrays)
    np.testing.assert_allclose(arrays[2].numpy(), a @ b, rtol=1e-4)
    seconds = kernel.time_evaluator("main", device, number=10)(*arrays).median
    print(f"{op.flops / seconds / 1e9:.1f} GFLOPS on {host}, equal to NumPy")


if __name__ == "__main__":
    main()

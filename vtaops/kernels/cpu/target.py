"""CpuTarget: the features of a CPU that schedules depend on, detected through LLVM."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

_FEATURES = (
    "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512vnni", "avxvnni", "avx2", "fma", "f16c",
    "neon", "i8mm",
)  # fmt: skip
"""Features that affect a schedule, or that a hypervisor may hide."""

_AVX512_TUNING = ["-prefer-256-bit", "+prefer-no-gather", "+prefer-no-scatter"]
"""LLVM's vectors are whole registers, and it vectorizes the loop along memory.

It would unroll a short inner loop and vectorize the outer one, an element per gather and scatter:
ten times slower on Zen 4, and slow on Intel since the mitigations of CVE-2022-40982.
"""

_CODEGEN = "tvm.codegen.llvm."


def _host() -> dict[str, bool]:
    """Return the features of processors that LLVM knows, and whether this one has them."""
    import tvm_ffi

    features = tvm_ffi.get_global_func(_CODEGEN + "GetHostCPUFeatures")()
    return {str(name): bool(present) for name, present in features.items()}


def lacking(mcpu: str) -> tuple[str, ...]:
    """Return the features that LLVM ascribes to a processor, and this machine lacks."""
    import tvm_ffi
    from tvm.target import Target

    ascribed = tvm_ffi.get_global_func("target.llvm_get_cpu_features")(
        Target({"kind": "llvm", "mcpu": mcpu})
    )
    host = _host()
    return tuple(sorted(str(name) for name in ascribed if host.get(str(name)) is False))


@dataclass(frozen=True)
class CpuTarget:
    """A CPU to compile kernels for.

    Attributes
    ----------
    mcpu : str
        LLVM's name of the processor.
    features : tuple of str
        Present LLVM features, among those that matter to a schedule.
    missing : tuple of str
        Features that LLVM ascribes to `mcpu` but this machine lacks (for example hidden by a
        hypervisor).
    cores : int
        Threads that a kernel may use.
    triple : str
        LLVM triple for cross-compilation; empty: this platform.
    """

    mcpu: str
    features: tuple[str, ...]
    missing: tuple[str, ...]
    cores: int
    triple: str = ""

    @classmethod
    @cache
    def detect(cls) -> CpuTarget:
        """Return the CPU of this process."""
        import tvm_ffi

        host, mcpu = _host(), str(tvm_ffi.get_global_func(_CODEGEN + "GetHostCPUName")())
        return cls(
            mcpu=mcpu,
            features=tuple(name for name in _FEATURES if host.get(name)),
            missing=lacking(mcpu),
            cores=thread_count(),
        )

    @property
    def lanes(self) -> int:
        """float32 lanes of a vector register."""
        if "avx512f" in self.features:
            return 16
        return 8 if "avx2" in self.features else 4

    @property
    def registers(self) -> int:
        """Vector registers: 32 with AVX-512 and on aarch64, else 16."""
        return 32 if {"avx512f", "neon"} & set(self.features) else 16

    @property
    def narrow_tiles(self) -> bool:
        """Whether tiles of float32 sums are one vector wide.

        In wider ones vectors share a broadcast value, which saves loads. Zen 4 multiplies 512 bits
        in two cycles, and loads meanwhile: narrow tiles are up to a quarter faster there.
        """
        return self.mcpu == "znver4" and self.lanes == 16

    @property
    def accumulators(self) -> int:
        """Vector registers available for a tile of sums; the others hold operands."""
        return self.registers - 4

    @property
    def dot_instruction(self) -> str:
        """Byte dot-product instruction, or "" if none.

        vpdpbusd (VNNI) and usdot (i8mm) add four u8 by s8 products to a 32-bit sum; pmaddwd takes
        two 16-bit numbers, to which bytes are widened.
        """
        if "i8mm" in self.features:
            return "usdot"
        if {"avx512f", "avx512vnni"} <= set(self.features) or "avxvnni" in self.features:
            return "vpdpbusd"
        return "pmaddwd" if "avx2" in self.features else ""

    @property
    def dot_lanes(self) -> int:
        """int32 lanes of `dot_instruction`, 0 without one."""
        wide = {"vpdpbusd": "avx512vnni", "pmaddwd": "avx512bw"}
        instruction = self.dot_instruction
        if {"avx512f", wide.get(instruction)} <= set(self.features):
            return 16
        return {"": 0, "usdot": 4}.get(instruction, 8)

    @property
    def storage(self) -> tuple[str, ...]:
        """Supported 16-bit storage dtypes: bfloat16 by shifts, float16 by F16C."""
        converts = {"f16c", "neon"} & set(self.features)
        return ("float16", "bfloat16") if converts else ("bfloat16",)

    @cached_property
    def tvm(self) -> Any:
        """The ``tvm.target.Target``."""
        from tvm.target import Target

        description: dict[str, Any] = {"kind": "llvm", "mcpu": self.mcpu, "num-cores": self.cores}
        attributes = [f"-{name}" for name in self.missing]
        if self.triple:
            description["mtriple"] = self.triple
            attributes += [f"+{name}" for name in self.features]
        if "avx512f" in self.features:
            attributes += _AVX512_TUNING
        if attributes:
            description["mattr"] = attributes
        return Target(description)


def thread_count() -> int:
    """Return the threads a kernel may use: TVM_NUM_THREADS, OMP_NUM_THREADS, or the usable CPUs."""
    for variable in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(variable, "")
        if text.isdigit() and int(text) > 0:
            return int(text)
    return len(os.sched_getaffinity(0))

"""Check and time kernels that `cuda_operators.py --export` wrote, on a machine with a GPU.

Needs NumPy and a CUDA build of PyTorch, neither vtaops nor TVM: the kernels are loaded by the CUDA
driver. Each is compared with PyTorch first, then the candidates of a case are timed and the best is
measured beside PyTorch (cuBLAS, cuDNN) and the bandwidth of a copy.

Two times are given. *warm*: a CUDA graph of many runs, divided by their number; launches cost
nothing and data that fits stays in the second-level cache. *cold*: one run after a memory fill that
replaces that cache.

A worker process does the work, one case after the other. A kernel that brings the GPU into an error
ends the worker, and one that hangs has it ended; that candidate is recorded as failed and another
worker goes on behind it.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# --- What PyTorch computes ------------------------------------------------------------------------


def reference(op: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """Return PyTorch's result for an operator of kernels.json, by its arguments' names."""
    return vendor_call(op, tensors)()


def vendor_call(op: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """Return the PyTorch call that computes an operator, without arguments."""
    import torch
    from torch.nn import functional

    values = list(tensors.values())
    kind = op["type"]
    end = op.get("epilogue") or {}
    if kind == "MatmulOp":
        a, b = values[0], values[1].T if op["transposed_b"] else values[1]
        if a.dtype == torch.int8:
            product = lambda: integer_product(a, b)  # noqa: E731
        else:
            product = lambda: torch.mm(a, b)  # noqa: E731
        return finished(product, end, tensors, (1, -1))
    if kind == "PackedConv2dOp":
        return packed_call(op, tensors)
    if kind in ("Conv2dOp", "DepthwiseOp"):
        x, w = values[0], values[1]
        window = op["window"]
        groups = op["groups"] if kind == "Conv2dOp" else op["channels"]
        w = w.reshape(-1, *w.shape[-3:]) if kind == "Conv2dOp" else w.flatten(0, 1).unsqueeze(1)
        top, left, bottom, right = window["padding"]
        steps = {"stride": window["strides"], "dilation": window["dilation"], "groups": groups}
        if (top, left) == (bottom, right):
            convolve = lambda: functional.conv2d(x, w, padding=(top, left), **steps)  # noqa: E731
        else:
            sides = (left, right, top, bottom)
            convolve = lambda: functional.conv2d(functional.pad(x, sides), w, **steps)  # noqa: E731
        return finished(convolve, end, tensors, (1, -1, 1, 1))
    if kind == "PoolOp":
        window = op["window"]
        pool = functional.max_pool2d if op["kind"] == "max" else functional.avg_pool2d
        arguments = (window["kernel"], window["strides"], window["padding"][:2])
        return lambda: pool(values[0], *arguments)
    if kind == "GlobalPoolOp":
        return lambda: values[0].amax(1) if op["kind"] == "max" else values[0].mean(1)
    if kind == "SoftmaxOp":
        return lambda: torch.softmax(values[0], -1)
    if kind == "Conv1dOp":
        x, w = values[0][None, None], values[1][None, None]
        if op["flip"]:
            w = w.flip(-1)
        return lambda: functional.conv1d(functional.pad(x, op["padding"]), w)[0, 0]
    if kind == "BroadcastOp":
        call = {"multiply": torch.mul, "subtract": torch.sub}.get(op["name"])
        call = call or getattr(torch, op["name"])
        return lambda: call(values[0], values[1])
    if kind == "UnaryOp":
        return lambda: torch.relu(values[0])
    if kind == "NormalizeOp":
        return finished(lambda: values[0], end, tensors, (1, -1, 1))
    if kind == "SeparableOp":
        return finished(separable(op, tensors), end, tensors, (1, -1, 1, 1))
    raise ValueError(f"PyTorch's counterpart of {kind} is not known here")


def integer_product(a: Any, b: Any) -> Any:
    """Return an int8 product with int32 sums: cuBLAS where it can, else in floating point."""
    import torch

    try:
        return torch._int_mm(a, b)
    except RuntimeError:
        return (a.double() @ b.double()).int()


def finished(
    call: Any, end: dict[str, Any], tensors: dict[str, Any], shape: tuple[int, ...]
) -> Any:
    """Return a call followed by the epilogue of an operator."""
    import torch

    def whole() -> Any:
        value = call()
        if end.get("bias"):
            value = value + tensors["bias"].reshape(shape)
        if end.get("scale_shift"):
            value = value * tensors["scale"].reshape(shape) + tensors["shift"].reshape(shape)
        if end.get("batch_norm") is not None:
            scale = tensors["gamma"] / torch.sqrt(tensors["variance"] + end["batch_norm"])
            shift = tensors["beta"] - tensors["mean"] * scale
            value = value * scale.reshape(shape) + shift.reshape(shape)
        if end.get("residual"):
            value = value + tensors["residual"]
        return torch.relu(value) if end.get("activation") == "relu" else value

    return call if not any(value not in (None, False) for value in end.values()) else whole


def packed_call(op: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """Return the call of a convolution without epilogue on NCHW data, its result as NCHW[b]c."""
    import torch
    from torch.nn import functional

    x, w = tensors["data"], tensors["kernel"]
    n, blocks, height, width, b = x.shape
    x = x.permute(0, 1, 4, 2, 3).reshape(n, blocks * b, height, width).float().contiguous()
    order = (0, 5, 1, 4, 2, 3) if w.ndim == 6 else (0, 5, 1, 4, 6, 2, 3)
    w = w.permute(order).reshape(op["out_blocks"] * b, blocks * b, *op["window"]["kernel"])
    w, window, integer = w.float().contiguous(), op["window"], op["dtype"] != "float32"

    def call() -> Any:
        result = functional.conv2d(
            x, w, None, window["strides"], window["padding"][:2], window["dilation"]
        )
        result = result.unflatten(1, (-1, b)).permute(0, 1, 3, 4, 2)
        return result.to(torch.int32) if integer else result

    return call


def separable(op: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """Return the call of a depthwise convolution, an activation and a 1x1 convolution."""
    import torch
    from torch.nn import functional

    x, depthwise, pointwise = (tensors[name] for name in ("data", "depthwise", "pointwise"))
    window = op["window"]
    first, second = depthwise.flatten(0, 1).unsqueeze(1), pointwise[:, :, None, None]
    steps = {"stride": window["strides"], "dilation": window["dilation"], "groups": x.shape[1]}
    relu = torch.relu if op["between"]["activation"] == "relu" else (lambda value: value)
    padding = tuple(window["padding"][:2])
    return lambda: functional.conv2d(
        relu(functional.conv2d(x, first, padding=padding, **steps)), second
    )


def random_tensors(case: dict[str, Any], device: str) -> dict[str, Any]:
    """Return random arguments of a case by name; variances are positive."""
    import torch

    generator = torch.Generator(device).manual_seed(0)
    tensors = {}
    for spec in case["arguments"][:-1]:
        kind = getattr(torch, spec["dtype"])
        if kind.is_floating_point:
            value = torch.randn(spec["shape"], generator=generator, device=device, dtype=kind)
            tensors[spec["name"]] = value.abs() + 0.5 if spec["name"] == "variance" else value
        else:
            low = 0 if kind == torch.uint8 else -99
            value = torch.randint(low, 99, spec["shape"], generator=generator, device=device)
            tensors[spec["name"]] = value.to(kind)
    return tensors


def wrong(result: Any, expected: Any) -> str:
    """Return how a result differs from what is expected, or nothing.

    Differences are measured by the largest expected value: sums are rounded in another order, and
    float16 results of PyTorch are rounded once more.
    """
    import torch

    exact = torch.float32 if result.dtype.is_floating_point else torch.float64
    result, wanted = result.to(exact), expected.to(exact)
    if torch.isnan(result).any():
        return "the result has elements that were not written, or are no numbers"
    scale = float(wanted.abs().max()) or 1.0
    error = float((result - wanted).abs().max()) / scale
    allowed = 2e-3 if expected.dtype == torch.float16 else 1e-4
    return "" if error <= allowed else f"largest error {error:.1e} of the largest value"


# --- The GPU --------------------------------------------------------------------------------------


class DriverError(Exception):
    """The CUDA driver refused something."""


class Gpu:
    """The first GPU: PyTorch's memory and streams, kernels by the CUDA driver."""

    device = "cuda"

    def __init__(self) -> None:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        torch.zeros(1, device="cuda")  # makes the context that the driver calls below use
        self.torch = torch
        self.driver = ctypes.CDLL("libcuda.so.1")
        properties = torch.cuda.get_device_properties(0)
        cache = getattr(properties, "L2_cache_size", 64 << 20)
        self.fill = torch.empty(max(2 * cache, 64 << 20), dtype=torch.int8, device="cuda")

    def describe(self) -> dict[str, Any]:
        """Return card, versions and the bandwidth of a copy in GB/s."""
        torch = self.torch
        source = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
        target = torch.empty_like(source)
        seconds = self.warm(lambda: target.copy_(source))
        return {
            "card": torch.cuda.get_device_name(0),
            "capability": ".".join(map(str, torch.cuda.get_device_capability(0))),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "copy_gigabytes_per_second": 2 * (1 << 30) / seconds / 1e9,
        }

    def _ask(self, name: str, *arguments: Any) -> None:
        code = getattr(self.driver, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(code, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'?').decode()} ({code})")

    def load(self, path: Path, function: str) -> Any:
        """Return the handle of a kernel."""
        module, handle = ctypes.c_void_p(), ctypes.c_void_p()
        self._ask("cuModuleLoadData", ctypes.byref(module), path.read_bytes())
        self._ask("cuModuleGetFunction", ctypes.byref(handle), module, function.encode())
        return handle

    def empty(self, shape: list[int], dtype: str) -> Any:
        """Return an array on the GPU."""
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device=self.device)

    def launch(self, handle: Any, grid: Any, block: Any, tensors: list[Any]) -> None:
        """Launch a kernel on PyTorch's current stream."""
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        packed = (ctypes.c_void_p * len(pointers))(
            *(ctypes.cast(ctypes.byref(pointer), ctypes.c_void_p) for pointer in pointers)
        )
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        self._ask("cuLaunchKernel", handle, *grid, *block, 0, stream, packed, None)

    def synchronize(self) -> None:
        """Wait for the GPU; errors of kernels appear here."""
        self.torch.cuda.synchronize()

    def warm(self, call: Any, budget: float = 0.05) -> float:
        """Return the seconds of one run within a CUDA graph of many; median of five replays."""
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
            self.synchronize()
            begin = time.perf_counter()
            for _ in range(3):
                call()
            self.synchronize()
            once = (time.perf_counter() - begin) / 3
        count = max(1, min(200, int(budget / 6 / max(once, 1e-6))))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                call()
        graph.replay()
        return self._median([self._event_seconds(graph.replay) / count for _ in range(5)])

    def cold(self, call: Any, repeats: int = 15) -> float:
        """Return the median seconds of one run after a fill that replaces the cache."""
        call()
        samples = []
        for _ in range(repeats):
            self.fill.zero_()
            samples.append(self._event_seconds(call, wait=False))
        self.synchronize()
        return self._median([begin.elapsed_time(end) / 1e3 for begin, end in samples])

    def _event_seconds(self, call: Any, wait: bool = True) -> Any:
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in "be")
        begin.record()
        call()
        end.record()
        if not wait:
            return begin, end
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    @staticmethod
    def _median(samples: list[float]) -> float:
        return sorted(samples)[len(samples) // 2]


# --- One case -------------------------------------------------------------------------------------


def bind(gpu: Any, candidate: dict[str, Any], folder: Path, tensors: dict[str, Any]) -> Any:
    """Return a call, without arguments, that launches a candidate on tensors by name."""
    scratch = {name: gpu.empty(*spec) for name, spec in candidate["workspace"].items()}
    given = {**tensors, **scratch}
    launches = [
        (
            gpu.load(folder / candidate["file"], launch["function"]),
            launch["grid"],
            launch["block"],
            [given[name] for name in launch["parameters"]],
        )
        for launch in candidate["launches"]
    ]

    def call() -> None:
        for launch in launches:
            gpu.launch(*launch)

    return call


def run_case(
    gpu: Any, case: dict[str, Any], folder: Path, seconds: float, skipped: set[int], tell: Any
) -> dict[str, Any]:
    """Check and time the candidates of a case, and return its row.

    Parameters
    ----------
    gpu : Gpu
        Where.
    case : dict
        Of kernels.json.
    folder : Path
        Where the machine code is.
    seconds : float
        After these no further candidate is begun; the first is always tried.
    skipped : set of int
        Candidates that ended a worker before.
    tell : callable
        Called with the number of each candidate before it is touched, -1 for PyTorch.
    """
    import torch

    begin = time.perf_counter()
    tensors = random_tensors(case, gpu.device)
    spec = case["arguments"][-1]
    output = torch.empty(spec["shape"], dtype=getattr(torch, spec["dtype"]), device=gpu.device)
    tensors_out = {**tensors, spec["name"]: output}
    call = vendor_call(case["op"], tensors)
    expected = call()
    timed: list[tuple[float, int, Any]] = []
    failed: list[dict[str, str]] = []
    for number, candidate in enumerate(case["candidates"]):
        if number in skipped:
            failed.append({"tile": candidate["tile"], "why": "ended the process"})
            continue
        if timed and time.perf_counter() - begin > seconds:
            break
        tell(number)
        try:
            launch = bind(gpu, candidate, folder, tensors_out)
            output.fill_(math.nan if output.dtype.is_floating_point else -77)
            launch()
            gpu.synchronize()
            difference = wrong(output, expected)
            if difference:
                failed.append({"tile": candidate["tile"], "why": difference})
                continue
            timed.append((gpu.warm(launch, 0.01), number, launch))
        except DriverError as error:
            failed.append({"tile": candidate["tile"], "why": str(error)})
    row: dict[str, Any] = {key: case[key] for key in ("operator", "size", "flops", "bytes")}
    row |= {"tried": len(timed) + len(failed), "of": len(case["candidates"]), "failed": failed}
    if not timed:
        return row
    best = min(timed, key=lambda entry: entry[0])
    tell(best[1])
    row |= {
        "tile": case["candidates"][best[1]]["tile"],
        "times": [
            {"tile": case["candidates"][number]["tile"], "seconds": seconds}
            for seconds, number, _ in timed
        ],
        "warm": gpu.warm(best[2]),
        "cold": gpu.cold(best[2]),
    }
    tell(-1)
    try:
        row |= {"torch_warm": gpu.warm(call), "torch_cold": gpu.cold(call)}
    except RuntimeError as error:  # ours is measured all the same
        row["torch_failed"] = str(error)[:200]
    return row


# --- Workers --------------------------------------------------------------------------------------


def work(folder: Path, first: int, budget: float, skipped: set[int], only: set[str]) -> None:
    """Run the cases from `first` on, telling the parent by lines of JSON."""

    def say(**message: Any) -> None:
        print(json.dumps(message), flush=True)

    cases = json.loads((folder / "kernels.json").read_text())["cases"]
    gpu = Gpu()
    say(card=gpu.describe())
    end = time.monotonic() + budget
    for number in range(first, len(cases)):
        if only and cases[number]["operator"] not in only:
            continue
        left = end - time.monotonic()
        if left <= 0:
            say(out_of_time=number)
            return
        share = max(1.0, left / (len(cases) - number))
        say(case=number)
        row = run_case(
            gpu,
            cases[number],
            folder,
            share,
            skipped if number == first else set(),
            lambda candidate: say(candidate=candidate),
        )
        say(row=row)
    say(done=True)


def lines_of(process: subprocess.Popen[str], silence: float) -> Iterator[str]:
    """Yield the lines that a process prints; end it if it prints none for `silence` seconds."""
    assert process.stdout
    while True:
        guard = threading.Timer(silence, process.kill)
        guard.start()
        line = process.stdout.readline()
        guard.cancel()
        if not line:
            return
        yield line


def run(
    folder: Path,
    budget: float,
    only: set[str] | None = None,
    command: Any = None,
    silence: float = 90,
) -> dict[str, Any]:
    """Run a folder of kernels in worker processes and return the results.

    Parameters
    ----------
    folder : Path
        Of `--export`.
    budget : float
        Seconds in all.
    only : set of str
        Operators; all without.
    command : list of str, optional
        What starts a worker; for tests.
    silence : float
        Seconds after which a worker that tells nothing is ended: its kernel hangs.
    """
    cases = json.loads((folder / "kernels.json").read_text())["cases"]
    end = time.monotonic() + budget
    results: dict[str, Any] = {"date": str(datetime.date.today()), "rows": [], "notes": []}
    first, skipped = 0, set()
    while first < len(cases) and time.monotonic() < end:
        state = {"case": first, "candidate": None, "over": False}
        start = command or [sys.executable, str(Path(__file__).resolve()), str(folder), "--worker"]
        chosen = ["--only", ",".join(sorted(only))] if only else []
        left = max(1.0, end - time.monotonic())
        extra = [f"--first={first}", f"--budget={left}", f"--skip={','.join(map(str, skipped))}"]
        with tempfile.TemporaryFile("w+") as errors:
            with subprocess.Popen(
                [*start, *extra, *chosen], stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process:
                for line in lines_of(process, silence):
                    listen(line, state, results)
            errors.seek(0)
            message = errors.read().strip()[-400:] or f"exit code {process.returncode}"
        if state["over"]:
            break
        results["notes"].append(f"a worker ended at case {state['case']}: {message}")
        if state["candidate"] is None or state["candidate"] in skipped:
            if "card" not in results:
                break  # no GPU, no driver, no PyTorch: another worker would fare no better
            name = cases[state["case"]]
            results["rows"].append(
                {"operator": name["operator"], "size": name["size"], "failed": [{"why": message}]}
            )
            first, skipped = state["case"] + 1, set()
        else:
            skipped = (skipped if state["case"] == first else set()) | {state["candidate"]}
            first = state["case"]
    return results


def listen(line: str, state: dict[str, Any], results: dict[str, Any]) -> None:
    """Take in one line of a worker."""
    try:
        message = json.loads(line)
    except json.JSONDecodeError:
        return  # a library's chatter
    if "card" in message:
        results["card"] = message["card"]
    elif "case" in message:
        state.update(case=message["case"], candidate=None)
    elif "candidate" in message:
        state["candidate"] = message["candidate"]
    elif "row" in message:
        results["rows"].append(message["row"])
        state.update(case=state["case"] + 1, candidate=None)
        print(describe_row(message["row"], results.get("card")), flush=True)
    elif "out_of_time" in message:
        results["notes"].append(f"out of time before case {message['out_of_time']}")
        state["over"] = True
    elif "done" in message:
        state["over"] = True


def describe_row(row: dict[str, Any], card: dict[str, Any] | None) -> str:
    """Return a row as a line of text."""
    head = f"{row['operator']:<16}{row['size']:<28}"
    if "warm" not in row:
        why = "; ".join(failure["why"] for failure in row["failed"][:1])
        return f"{head}FAILED: {why}"
    text = f"{head}{row['warm'] * 1e6:9.1f} us {row['flops'] / row['warm'] / 1e9:9.0f} GFLOPS"
    if "torch_warm" in row:
        text += f"  {row['warm'] / row['torch_warm']:5.2f} of PyTorch"
    if card:
        share = row["bytes"] / row["cold"] / 1e9 / card["copy_gigabytes_per_second"]
        text += f"  {share:5.0%} of a copy"
    return f"{text}  {row['tried']}/{row['of']} tried, {len(row['failed'])} failed"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None,
        epilog="example: python cuda_run.py kernels --json gpu.json",
    )
    parser.add_argument("folder", type=Path, help="what cuda_operators.py --export wrote")
    parser.add_argument("--budget", type=float, default=420, help="seconds in all (420)")
    parser.add_argument("--only", default="", help="comma-separated operators")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--skip", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    only = {name for name in options.only.split(",") if name}
    if options.worker:
        skipped = {int(number) for number in options.skip.split(",") if number}
        work(options.folder, options.first, options.budget, skipped, only)
        return
    results = run(options.folder, options.budget, only)
    for note in results["notes"]:
        print(note, file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    if not any("warm" in row for row in results["rows"]):
        sys.exit("nothing was measured")


if __name__ == "__main__":
    main()

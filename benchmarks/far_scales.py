"""Operators of tensors whose scales lie far apart: what vtaops makes of a file is ONNX Runtime's.

    python -m benchmarks far_scales --minutes 9      # again until nothing is left
    python -m benchmarks far_scales --again          # those of other code than today's
    python -m benchmarks far_scales --json benchmarks/results/far_scales.json

Random QDQ files of foreign quantisers, batch 1 to 4, scales from 2**-30 to 2**30
(`trials/far_scales.py`). Each is imported and compared with ONNX Runtime; three of five are
compiled as well. Exit code: 1 if a difference has no stated cause, 2 if some are left.
"""

from __future__ import annotations

import traceback
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.options import Again, Json, Minutes, State, write_json
from benchmarks.resumable import by_code, resume
from trials.far_scales import Case, judge

CONFIGS = ("", "", "pynq", "pynq_ext", "pynq_exact")


def main(
    files: Annotated[int, typer.Option(help="Seeds 0, 1, ...")] = 2600,
    minutes: Minutes = 9.0,
    again: Again = False,
    state_file: State = Path("far_scales.jsonl"),
    json_file: Json = None,
) -> int:
    """Read the options, run what is left, show all; return the exit code."""
    cases = [str(seed) for seed in range(files)]
    results = resume(state_file, cases, trial, minutes, "files", again=again)
    kinds = dict(sorted(Counter(r["kind"] for r in results.values()).items()))
    print(kinds)
    print(by_code(results))
    failed = {case: r for case, r in results.items() if r["error"]}
    for case, result in failed.items():
        print(case, result["kind"], result["error"])
    write_json(json_file, {"files": kinds, "failed": failed, "code": by_code(results)})
    print(f"{len(results)} files, {len(failed)} with a difference that has no stated cause")
    return 1 if failed else 0 if len(results) == len(cases) else 2


def trial(case: str) -> dict[str, Any]:
    """Judge the file of one seed."""
    seed = int(case)
    made = Case(seed)
    try:
        error = judge(made, CONFIGS[seed % len(CONFIGS)])
    except Exception:
        error = traceback.format_exc()[-1000:]
    return {"kind": made.kind, "error": error}

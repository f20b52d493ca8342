"""Bugs of a compiler, and how one is put into the package: in memory, before it is imported.

Each of `BUGS` changes one line of the compiler. ``python -m trials.planted_bugs NAME`` compiles
small operators and networks with it and prints what each judge says (`trials.compiler_bugs`), as
JSON. As a plugin of pytest, ``-p trials.planted_bugs``, it puts the bug of the environment variable
`VARIABLE` in its place before any test is collected. Imports nothing of the package before that.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType
from typing import Any, NamedTuple

VARIABLE = "VTAOPS_PLANTED_BUG"
"""The environment variable that names the bug which tests are run with."""


class Bug(NamedTuple):
    """A change of one place: of a file of the package, by its path."""

    name: str
    path: str
    right: str
    wrong: str


BUGS = (
    Bug(
        "LOAD rows one element too far apart",
        "lowering/copies.py",
        "stride = int(box[1, 0] - box[0, 0]) if y_size > 1 else x_size\n"
        "    expected = box[0, 0] + np.arange(y_size)[:, None] * stride + np.arange(x_size)\n",
        "stride = int(box[1, 0] - box[0, 0]) if y_size > 1 else x_size\n"
        "    expected = box[0, 0] + np.arange(y_size)[:, None] * stride + np.arange(x_size)\n"
        "    stride += y_size > 1 and any(sides)\n",
    ),
    Bug(
        "padding on the top and the bottom exchanged",
        "lowering/copies.py",
        "sides = (top, bottom, left, right)",
        "sides = (bottom, top, left, right)",
    ),
    Bug(
        "padding on the left and the right exchanged",
        "lowering/copies.py",
        "sides = (top, bottom, left, right)",
        "sides = (top, bottom, right, left)",
    ),
    Bug(
        "runs of a copy one element too long",
        "lowering/copies.py",
        "yield part, min(end, part + MAX_SIZE)",
        "yield part, min(len(flat), end + 1, part + MAX_SIZE)",
    ),
    Bug(
        "parts of a split copy to the first place",
        "lowering/copies.py",
        "at = sram + index * part.size",
        "at = sram",
    ),
    Bug(
        "border: rows of another image height",
        "lowering/options.py",
        "area = height * width",
        "area = (height - (top > 0)) * width",
    ),
    Bug(
        "border: column without the left side",
        "lowering/options.py",
        "top * width + left)",
        "top * width)",
    ),
    Bug(
        "border filled with zeros, not the zero point",
        "network/places.py",
        "fill = self.zero_point",
        "fill = 0",
    ),
    Bug(
        "images of a batch a block apart",
        "lowering/options.py",
        "return Strides(blocks * area, area,",
        "return Strides(area, area,",
    ),
    Bug(
        "both images of a batch of two at one place",
        "lowering/options.py",
        "stride if extent > 1 else 0",
        "stride if extent > 2 else 0",
    ),
    Bug(
        "images of a slice as far apart as its own blocks",
        "lowering/emission/images.py",
        "image * strides.image",
        "image * blocks * strides.block",
    ),
    Bug(
        "copies of a part recur like those of a whole",
        "lowering/emission/transfers.py",
        "period, step = _period(*self._part) if self._part else (1, 1)",
        "period, step = 1, 1",
    ),
    Bug(
        "a part is contiguous if its rows and blocks are",
        "network/fragments.py",
        "if strides != Strides.of(extents).over(extents):",
        "if replace(strides, image=0) != replace(Strides.of(extents).over(extents), image=0):",
    ),
    Bug(
        "equal operators at different places share their accesses",
        "network/fragments.py",
        "key = op, tiling, rows, tabulated, tuple(strides.items())",
        "key = op, tiling, rows, tabulated",
    ),
    Bug(
        "first block of a slice counted in images",
        "network/places.py",
        "self.block * found.block",
        "self.block * found.image",
    ),
    Bug(
        "blocks of a slice counted by its channels",
        "network/places.py",
        "max(self.lanes) // size - self.block + 1",
        "(len(self.lanes) - 1) // size + 1",
    ),
    Bug(
        "lanes of a slice counted within a tile",
        "network/places.py",
        "tuple(lane - start for lane in self.lanes)",
        "tuple(min(lane - start, lane % self.memory.block) for lane in self.lanes)",
    ),
    Bug(
        "slice begins at the first channel",
        "network/lower.py",
        "lanes.take(range(op.start, op.stop, op.step), op.axis)",
        "lanes.take(range(0, op.stop - op.start, op.step), op.axis)",
    ),
    Bug(
        "results in the order of their lanes",
        "program/region.py",
        "array[:, list(self.lanes)]",
        "array[:, sorted(self.lanes)]",
    ),
    Bug(
        "columns of a first layer: sides exchanged",
        "machine/views.py",
        "(0, left, 0, right), gaps",
        "(0, right, 0, left), gaps",
    ),
    Bug(
        "a tile that is still there, although the content is another",
        "lowering/emission/transfers.py",
        "content = (self._number, copy.content, shift)",
        "content = (self._number, copy.content)",
    ),
    Bug(
        "last iteration of a guarded loop left out",
        "lowering/emission/computation.py",
        "s if extent == 1 else p for",
        "s if extent == 1 else p[:-1] or p for",
    ),
    Bug(
        "hardware loops: src steps of the outer loop for the inner",
        "lowering/emission/instructions.py",
        'fields[f"{operand}_factor_in"] = kernel.inner.strides[column]',
        'fields[f"{operand}_factor_in"] = kernel.inner.strides[min(column, 1)]',
    ),
    Bug(
        "outer loop one iteration short",
        "lowering/emission/instructions.py",
        '"iter_out": kernel.outer.extent,',
        '"iter_out": max(1, kernel.outer.extent - 1),',
    ),
    Bug(
        "accesses without those of the outer loop",
        "machine/accesses.py",
        "((tiles, 1), (inner, factor_in), (outer, factor_out))",
        "((tiles, 1), (inner, factor_in))",
    ),
    Bug(
        "accesses of products without weights",
        "machine/accesses.py",
        "micro_ops.T, strict=False)",
        "micro_ops.T[:2], strict=False)",
    ),
    Bug(
        "weights of a moved operation stay",
        "lowering/operation.py",
        "self.micro_ops + _row(by)",
        "self.micro_ops + _row((*by[:2], 0))",
    ),
    Bug(
        "missing reset",
        "lowering/tree/builder.py",
        "return [reset(result), call(GEMM_CALL, result.spans, result, data, scale)]",
        "return [call(GEMM_CALL, result.spans, result, data, scale)]",
    ),
    Bug(
        "maxima begin with 0, not with -128",
        "lowering/emission/computation.py",
        'addition = {"alu_op": AluOp.ADD, "use_imm": 1, "imm": self._leaf.imm}',
        'addition = {"alu_op": AluOp.ADD, "use_imm": 1, "imm": 0}',
    ),
    Bug(
        "first products accumulate instead of overwriting",
        "lowering/passes/overwrite.py",
        "replace(i, uop_end=stop, overwrite=1)",
        "replace(i, uop_end=stop)",
    ),
    Bug(
        "overwriting product one micro-op too long",
        "lowering/passes/overwrite.py",
        "replace(i, uop_begin=stop)",
        "replace(i, uop_begin=stop - 1)",
    ),
    Bug(
        "POST rounds never",
        "lowering/passes/post.py",
        "return Post(enable=1, round_half=int(half > 0),",
        "return Post(enable=1, round_half=0,",
    ),
    Bug(
        "POST takes the bias of the next row",
        "lowering/passes/post.py",
        'row_of[theirs] = vector.steps("src") + first',
        'row_of[theirs] = vector.steps("src") + first + 1',
    ),
    Bug(
        "POST: bounds of the clip exchanged for those of int8",
        "lowering/passes/post.py",
        "multiplier=1, shift=shift, low=low, high=high)",
        "multiplier=1, shift=shift, low=-128, high=high)",
    ),
    Bug(
        "POST: setting kept over operators",
        "lowering/passes/post.py",
        "return result if now == OFF else [*result, Operation(OFF)]",
        "return result",
    ),
    Bug(
        "micro-ops of a stretch at the place of another",
        "lowering/linking/link.py",
        "encode_micro_ops(table)",
        "encode_micro_ops(np.roll(table, len(table) > 8, axis=0))",
    ),
    Bug(
        "micro-op table one short",
        "lowering/linking/link.py",
        "encode_micro_ops(table)",
        "encode_micro_ops(table[:-1])",
    ),
    Bug(
        "tokens: reads need no wait for writes of later tiles",
        "lowering/operation.py",
        "_uses.Operations([*numbers], words, order)",
        "_uses.Operations([o.having(operands=o.operands[:1]) for o in numbers], words, order)",
    ),
    Bug(
        "parts of a concatenation at the first slot",
        "lowering/linking/link.py",
        "else (p.buffer, p.offset) for",
        "else (p.buffer, 0) for",
    ),
    Bug(
        "forwarded from another buffer of the arena",
        "lowering/linking/link.py",
        "b.offset or 0, b.role is Role.SCRATCH",
        "0, b.role is Role.SCRATCH",
    ),
    Bug(
        "images live one operator too short",
        "network/regions.py",
        "Lifetime(min(numbers), max(numbers), sizes[name])",
        "Lifetime(min(numbers), max(min(numbers), max(numbers) - 1), sizes[name])",
    ),
    Bug(
        "zero point of the input forgotten",
        "network/epilogue.py",
        "total = -inputs[0].zero_point * sums",
        "total = 0 * sums",
    ),
    Bug(
        "zero point of the residual forgotten",
        "network/epilogue.py",
        "total = total - inputs[1].zero_point * factor",
        "total = total - 0 * factor",
    ),
    Bug(
        "residual shifted by a bit less",
        "network/epilogue.py",
        '"residual_shift": shift - bits}',
        '"residual_shift": max(0, shift - bits - 1)}',
    ),
    Bug(
        "channels of a concatenation in other lanes",
        "network/region.py",
        "start += widths[name]",
        "start += image_of(tensor)[1]",
    ),
    Bug(
        "channels that a transposition leaves in order",
        "network/lower.py",
        "region).transpose(op.axes)",
        "region)",
    ),
    Bug(
        "factors of an addition exchanged",
        "network/lower.py",
        '"other_scale": second',
        '"other_scale": first',
    ),
    Bug(
        "mean without padding: constant of the whole window",
        "network/averages.py",
        "scaled(pool, scaling, factor, data.zero_point, scales)",
        "scaled(pool, scaling, factor, data.zero_point * window.count // count, scales)",
    ),
    Bug(
        "digits of a bias: rest of the other sign",
        "machine/views.py",
        "digits[:, -1] = last",
        "digits[:, -1] = -last",
    ),
    Bug(
        "weights of groups packed at the first group",
        "machine/views.py",
        "columns = (group % self.merged * channels)[:, None] + np.arange(channels)",
        "columns = (group % self.merged * 0)[:, None] + np.arange(channels)",
    ),
    Bug(
        "windows of weights: columns of the window before",
        "machine/views.py",
        "column = window * self.step + tile\n",
        "column = max(0, window * self.step + tile - 1)\n",
    ),
    Bug(
        "packing: inner blocks in the wrong order",
        "machine/layout.py",
        'Layout(f"OIHW{config.block_out}o{config.block_in}i", view=view)',
        'Layout(f"OIHW{config.block_in}i{config.block_out}o", view=view)',
    ),
)
"""Bugs by name; each is a mistake that a compiler like this has had, or could well have."""


class _Patched(SourceFileLoader):
    """Loads a module with one line changed."""

    def __init__(self, name: str, path: str, bug: Bug) -> None:
        super().__init__(name, path)
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the changed source."""
        path = self.get_filename(fullname)
        source = self.get_data(path).decode()
        if source.count(self._bug.right) != 1:
            raise ValueError(
                f"{self._bug.name}: its line occurs {source.count(self._bug.right)} "
                f"times in {path}, not once"
            )
        return compile(source.replace(self._bug.right, self._bug.wrong), path, "exec")


class _Finder(MetaPathFinder):
    """Finds the one module that has the bug."""

    def __init__(self, bug: Bug) -> None:
        self._bug = bug
        self._module = "vtaops." + bug.path.removesuffix(".py").replace("/", ".")

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return where the module is; None for all others."""
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Patched(fullname, spec.origin, self._bug)
        return spec


def plant(name: str) -> None:
    """Put a bug in its place, or none if there is none of that name."""
    for bug in BUGS:
        if bug.name == name:
            sys.meta_path.insert(0, _Finder(bug))


plant(os.environ.get(VARIABLE, ""))


def main(name: str) -> None:
    """Examine the compiler with a bug, or without one if there is none of that name."""
    plant(name)
    from trials.compiler_bugs import examine

    print(json.dumps(examine()))


if __name__ == "__main__":
    main(sys.argv[1])

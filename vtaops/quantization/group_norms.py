"""Group norms as layer norms of rows: a group of channels, with all its pixels, is a row."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import (
    ModelProto,
    NodeProto,
    attributes,
    make_node,
    replace_initializer,
)
from vtaops.quantization.rewriter import Rewriter


def group_norms_as_rows(model: ModelProto) -> None:
    """Replace the instance norms by which exporters write group norms, in place.

    A single group takes the factors and terms of the channels that follow along.
    """
    known = any(entry.version >= _LAYER_NORMS for entry in model.opset_import if not entry.domain)
    if known and any(node.op_type == "InstanceNormalization" for node in model.graph.node):
        _Norms(model).run()


_LAYER_NORMS = 17
"""The opset from which ONNX has layer norms."""


class _Norms(Rewriter):
    """The nodes of a model, group norms among them as layer norms."""

    def nodes(self) -> Iterable[NodeProto]:
        for node in self.model.graph.node:
            back = self._back(node) if node.op_type == "InstanceNormalization" else None
            if back is not None:
                yield from self._of_rows(node, back)
            elif node.output[0] not in self.done:
                yield node

    def _back(self, node: NodeProto) -> NodeProto | None:
        """Return the reshape from the groups of a norm to an image; None if there is none."""
        before = self.tensors.writers.get(node.input[0])
        back = self.tensors.only_reader(node.output[0])
        if before is None or back is None or {before.op_type, back.op_type} != {"Reshape"}:
            return None
        return back if self._is_plain(node) and self._has_groups(before, node, back) else None

    def _is_plain(self, node: NodeProto) -> bool:
        """Return whether a norm has factors of 1 and terms of 0."""
        plain = (self.tensors.constants.get(name) for name in node.input[1:])
        pairs = zip(plain, (1, 0), strict=True)
        return all(p is not None and bool((p == number).all()) for p, number in pairs)

    def _has_groups(self, before: NodeProto, node: NodeProto, back: NodeProto) -> bool:
        """Return whether what is normalised are groups of the channels of an image."""
        image, rows = (self.shapes.get(n, ()) for n in (back.output[0], node.input[0]))
        whole = self.shapes.get(before.input[0]) == image and len(image) == 4 and len(rows) == 3
        return whole and image[1] % rows[1] == 0

    def _of_rows(self, node: NodeProto, back: NodeProto) -> Iterable[NodeProto]:
        (result,), groups = back.output, self.shapes[node.input[0]][1]
        channels = self.shapes[result][1]
        scale, shift = np.ones(channels), np.zeros(channels)
        if groups == 1:
            scale, shift, result = self._affine(scale, shift, result)
        row = self.shapes[node.input[0]][2]
        names = [f"{node.output[0]}_{part}" for part in ("weight", "bias")]
        for name, value in zip(names, (scale, shift), strict=True):
            each = np.repeat(value[: channels // groups], row * groups // channels)
            replace_initializer(self.model, name, each.astype(np.float32))
        epsilon = attributes(node).get("epsilon", 1e-5)
        yield make_node(
            "LayerNormalization", [node.input[0], *names], node.output, axis=-1, epsilon=epsilon
        )
        self.done.update(back.output)
        yield make_node("Reshape", [node.output[0], back.input[1]], [result])

    def _affine(self, scale: Array, shift: Array, result: str) -> tuple[Array, Array, str]:
        """Return factors and terms of channels with those that follow, and the result of these."""
        for kind in ("Mul", "Add"):
            reader = self.tensors.only_reader(result)
            if reader is None or reader.op_type != kind:
                continue
            each = self._by_channel(reader, result, len(scale))
            if each is None:
                break
            scale, shift = (scale * each, shift * each) if kind == "Mul" else (scale, shift + each)
            self.done.update(reader.output)
            result = reader.output[0]
        return scale, shift, result

    def _by_channel(self, node: NodeProto, data: str, channels: int) -> Array | None:
        """Return the constant of a node beside an image, one number for each channel."""
        constants = (self.tensors.constants.get(name) for name in node.input if name != data)
        value = next(constants, None)
        if value is None or value.size not in (1, channels):
            return None
        known = value.size == 1 or value.shape[-3:] == (channels, 1, 1)
        return np.broadcast_to(value.reshape(-1), channels) if known else None

"""NormalizeRows: layer and RMS norms of the rows of a matrix, which are lanes while it is computed.

The array reads 16 rows as a tile of weights and multiplies it by the identity: the rows become
lanes, so what differs by row (means, roots, shifts) are operands of the ALU, and sums along a row
are sums of accumulators. The result is transposed, (channels, rows).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vtaops.base.shapes import Array, require_at_least
from vtaops.machine.capabilities import Feature
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import Layout, data_layout, matrix_layout
from vtaops.ops.base import Operator
from vtaops.program import Buffer, Role

FACTORS = (1, 64)
"""Diagonals of the identities that rows are multiplied by: for squares, and for differences."""


@dataclass(frozen=True, kw_only=True, repr=False)
class RowOperator(Operator):
    """Base class of operators on the rows of a matrix, whose operations have no tiling.

    Parameters
    ----------
    rows, channels : int
        ``data`` is (1, rows, channels), the result (1, rows, channels, 1): rows are channels of it.
    """

    rows: int
    channels: int
    kind = "row_norm"

    @property
    def summary(self) -> str:
        return f"{self.kind} {self.rows}x{self.channels}"

    @property
    def features(self) -> frozenset[Feature]:
        return frozenset({Feature.MUL, Feature.TENSOR_SHIFT, Feature.LONG_SHIFT})

    def _of_rows(self, name: str, role: Role, config: HardwareConfig) -> Buffer:
        """Return a buffer like the data, whose rows are tiles of weights."""
        weights = Layout(f"BOI{config.block_out}o{config.block_in}i")
        return Buffer(name, role, (1, self.rows, self.channels), "int8", weights)

    def _of_columns(self, name: str, role: Role, config: HardwareConfig) -> Buffer:
        """Return a buffer like the result."""
        return Buffer(name, role, (1, self.rows, self.channels, 1), "int8", data_layout(config))


def _constants(tiles: int, config: HardwareConfig) -> Buffer:
    shape = tiles, config.block_in
    return Buffer("constants", Role.PARAMETER, shape, "int8", matrix_layout(config))


@dataclass(frozen=True, kw_only=True, repr=False)
class NormalizeRows(RowOperator):
    """``int8(clip(((rows of data, normalised) * scale + bias) >> shift) + zero_point)``.

    `vtaops.graph.normalization.normalized` defines it.

    Parameters
    ----------
    epsilon, shift, zero_point, center : int
        As of `vtaops.graph.RowNorm`.
    multiplier : int, optional
        The scale of all channels, which then have no bias, and no vectors are arguments.
    """

    epsilon: int
    shift: int
    zero_point: int = 0
    center: int | None = None
    multiplier: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, rows=self.rows, channels=self.channels, shift=self.shift)

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        block, matrix = config.block_in, matrix_layout(config)
        vectors = [
            Buffer(name, Role.PARAMETER, (self.channels, block), "int32", matrix)
            for name in ("scale", "bias")
            if self.multiplier is None
        ]
        return (
            self._of_rows("data", Role.INPUT, config),
            _constants(self.tiles(block), config),
            *vectors,
            self._of_columns("res", Role.OUTPUT, config),
        )

    def tiles(self, block: int) -> int:
        """Return the number of input tiles of constants."""
        return 2 + len(FACTORS) * block

    def constants(self, block: int) -> Array:
        """Return the input tiles: ones, ones up to the last channel, and the scaled identities."""
        ones = np.ones((2, block), np.int8)
        ones[1, (self.channels - 1) % block + 1 :] = 0
        identities = [factor * np.eye(block, dtype=np.int8) for factor in FACTORS]
        return np.concatenate([ones, *identities])


@dataclass(frozen=True, kw_only=True, repr=False)
class RowsBelowMaximum(RowOperator):
    """``data - maximum of its row + 127``, transposed: what a table of exponentials maps.

    Parameters
    ----------
    masked : bool
        Whether 4 times a ``mask`` is added before the maximum is taken, and to the difference.
    given : bool
        Whether the mask is one of the network, which lies like the data and may leave nothing of
        a row, whose values are then all 127.
    """

    masked: bool = False
    given: bool = False
    kind = "rows_below_maximum"

    @property
    def summary(self) -> str:
        return super().summary + (" given mask" if self.given else " masked" * self.masked)

    @property
    def features(self) -> frozenset[Feature]:
        return frozenset()

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        role = Role.INPUT if self.given else Role.PARAMETER
        return (
            self._of_rows("data", Role.INPUT, config),
            _constants(config.block_in << self.masked, config),
            *[self._of_rows("mask", role, config)] * self.masked,
            self._of_columns("res", Role.OUTPUT, config),
        )

    def constants(self, block: int) -> Array:
        """Return the input tiles: the identity, and 4 times it for a mask."""
        identity = np.eye(block, dtype=np.int8)
        return np.concatenate([identity, 4 * identity][: 1 + self.masked])


@dataclass(frozen=True, kw_only=True, repr=False)
class ColumnShares(RowOperator):
    """Columns of exponentials of two digits as shares in the sums of the columns.

    Parameters
    ----------
    rows, channels : int
        ``data``, the first digits, and ``low``, the second ones, are laid out like the result.
    multiplier, shift, zero_point : int
        Of 2**22 times the shares.
    least, most : int
        Bounds of the result.
    """

    multiplier: int
    shift: int
    zero_point: int = 0
    least: int = -128
    most: int = 127
    kind = "column_shares"

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        block = config.block_in
        weights = Layout(f"BOI{config.block_out}o{block}i")
        return (
            self._of_columns("data", Role.INPUT, config),
            self._of_columns("low", Role.INPUT, config),
            Buffer("constants", Role.PARAMETER, (1, block, block), "int8", weights),
            self._of_columns("res", Role.OUTPUT, config),
        )

"""Agreement: the result of comparing a network with the file that it came from."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Agreement:
    """How a network compares with its file, tensor by tensor.

    Attributes
    ----------
    runtime : str
        What ran the file, with its version.
    inputs : int
        Number of inputs that both ran.
    tensors : int
        Number of tensors compared.
    values : int
        Number of values compared, over all inputs.
    halves : int
        Values one step apart: exact halves, which the file's runtime rounds to even.
    scales : int
        Values one step apart because the number before rounding is as close to a half as integer
        scales and factors are exact (docs/quantization.md).
    reason : str
        Why nothing was compared; empty if something was.
    """

    runtime: str = ""
    inputs: int = 0
    tensors: int = 0
    values: int = 0
    halves: int = 0
    scales: int = 0
    reason: str = ""

    @property
    def differences(self) -> int:
        """The number of values that differ."""
        return self.halves + self.scales

    def __add__(self, other: Agreement) -> Agreement:
        """Return the comparison on the inputs of both; the tensors are the same."""
        counts = ("inputs", "values", "halves", "scales")
        return replace(
            self, **{name: getattr(self, name) + getattr(other, name) for name in counts}
        )

    def __str__(self) -> str:
        """Return one line."""
        if self.reason:
            return f"not compared with its file: {self.reason}"
        differing = self.differences
        causes = f": {self.halves:,} halves, {self.scales:,} by scales" if differing else ""
        return (
            f"says what its file says to {self.runtime}: {self.values:,} values of {self.tensors} "
            f"tensors, {self.inputs} inputs; {differing:,} a step apart{causes}"
        )

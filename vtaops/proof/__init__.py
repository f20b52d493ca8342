"""Prove that a Program computes what it declares, for every input and on every correct device.

`vtaops.prove` compares the result of a finished instruction stream with the definition of its
operator, or of the nodes of a graph. It shares with the compiler only the instruction set, the
layouts that pack arguments, and the descriptions of operators: their fields, the windows and shapes
that follow from these, and the arguments that they ask for.

**Theorem.** Let a program verify (`vtaops.program.verifier`), and let `prove` return without an
error and with nothing unproven. Then, except with the probability of error stated in the result,
for all values of its INPUT buffers (and, for a program of one operator, of its PARAMETER buffers),
on every correct device and under every interleaving, the outputs are those of the definition.

Proof sketch.

1. *One order.* By the verifier's theorem, the outputs are the same under every interleaving. It
   therefore suffices to execute the instructions in program order: on names of tiles (`names`),
   which then get their terms (`machine`).
2. *Terms.* Let the inputs be variables. The content of a memory at any time is then a *term*: a
   polynomial with integer coefficients in variables and in *leaves*. A leaf is a nonlinear
   operation (a right shift, a clamp, an extremum, a table, wrapping to 32 bits, the low 8 bits)
   applied to a term. The definition also gives a term for each scalar of the result (`operators`,
   `networks`). Terms that are equal as expressions are equal for all inputs, in Z and modulo 2**32,
   whatever the operations of the leaves mean: they are *uninterpreted functions*. Only the laws of
   integers that `terms` lists make equal terms equal as expressions: delayed shifts, merged clamps,
   maxima and minima as sets of their members, int8 values and numbers that a clamp does not change,
   and sums with zero.
3. *int32.* An accumulator holds the low 32 bits of its term. Sums and products of terms respect
   that. Where another operation follows (a shift, a clamp), the term must lie within int32, which
   its range shows (a middle and a radius, computed beside it), or it becomes a leaf: its own low 32
   bits. Wrapping is therefore part of the theorem.
4. *Fields.* Expressions are not compared but evaluated at a random point: variables are random
   elements, but zero, of pairs of prime fields, and leaves are hashes of the elements below them,
   modelled as random functions of all their residues. Equal expressions have equal values. Two
   different polynomials of degree d agree at a random point modulo a prime p with a probability of
   at most d / (p - 1) (Schwartz, Zippel). The primes are drawn at random from 2**30..2**31 after
   the program is fixed, so a coefficient is a multiple of one only by chance, and all fields would
   have to agree: (d / 2**30) ** (2 * pairs). Two different leaves agree if the polynomials below
   them do, or if their hashes, of 62 bits per pair, collide.
5. *Error.* If output and definition differ in some scalar, acceptance requires that this pair of
   different terms agrees, or a pair of different leaves below it, or that a term was mistaken for
   one of the 2**26 numbers whose leaves are computed. For one operator that sums, there are few
   such pairs (`prover.FEW`); otherwise there are at most n * n / 2, where n is the number of leaves
   of program and definition together. The result states the sum of their probabilities.

What the proof reads of a program or model is what a run reads: a record has exactly the fields of
its operator, and demands the names, shapes and types of the arguments (`records`); what changes
nothing is refused on load. Everything that `prove` cannot handle is listed as unproven. It assumes
that views and layouts of arguments move scalars (it queries the destination of each and does not
trust them to keep order), that NumPy adds and multiplies correctly, and that the host computes its
stages of a network by the executor that defines them. Each launch is proven for all values of the
tensors that it reads, so launches and host stages connect through the tensors of the graph.

Imports no TVM. Its loops are in C++ (`vtaops._proof`), which the wheel for boards lacks.
"""

from __future__ import annotations

from vtaops.base.errors import UnsupportedError
from vtaops.base.proof import Proof

try:
    import vtaops._proof  # noqa: F401 - the files of this room use it
except ImportError as error:
    raise UnsupportedError(
        f"a proof needs native code, which is not in the wheel for boards ({error}); prove it with "
        f"vtaops as installed on a computer"
    ) from error

from vtaops.proof.certificates import certificate, certified, rechecked
from vtaops.proof.prover import CHECKER, prove

__all__ = ["CHECKER", "Proof", "certificate", "certified", "prove", "rechecked"]

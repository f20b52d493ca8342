"""The proof that a Program computes what it declares: for every input, on every correct device.

`vtaops.prove` compares what a finished instruction stream computes with the definition of its
operator, or of the nodes of a graph. It shares with the compiler nothing but the instruction set,
the layouts with which arguments are packed, and the fields of descriptions.

**Theorem.** Let a program verify (`vtaops.program.verifier`), and let `prove` return without an
error and with nothing unproven. Then, but for the probability of error that the result states, for
all values of its INPUT buffers (and, for a program of one operator, of its PARAMETER buffers), on
every correct device and under every interleaving, the outputs are those of the definition.

Proof sketch.

1. *One order.* By the verifier's theorem the outputs are the same under every interleaving, so it
   suffices to execute the instructions in program order: on names of tiles (`names`), which then
   get their terms (`machine`).
2. *Terms.* Let the inputs be variables. What a memory holds at any time is then a *term*: a
   polynomial with integer coefficients in variables and in *leaves*; a leaf is an operation that is
   not linear (a shift to the right, a clamp, an extremum, a table, wrapping to 32 bits, the low 8
   bits) of a term. The definition is a term for each scalar of the result too (`operators`,
   `networks`). Terms that are equal as expressions are equal for all inputs, on Z and modulo 2**32,
   whatever the operations of the leaves mean: they are *functions without meaning*. Equal terms are
   made equal expressions by the laws of integers that `terms` lists, and by no others: shifts that
   wait, clamps that join, maxima and minima as sets of their members, int8 values and numbers that
   a clamp leaves alone, and the digits of row sums, whose weighted sum is the number that they
   stand for (`images`).
3. *int32.* An accumulator holds the low 32 bits of its term. Sums and products of terms respect
   that; where something else follows (a shift, a clamp), the term must lie within int32, which its
   range shows (a third reading of the same machine, over intervals), or it becomes a leaf: its own
   low 32 bits. So wrapping is part of the theorem; `Proof.overflow` names the first instruction
   whose sums could wrap, if there is one.
4. *Fields.* Expressions are not compared but evaluated at a random point: variables are random
   elements of pairs of prime fields, and leaves hashes of the elements below them, modelled as
   random functions of all their residues. Equal expressions have equal values. Two different
   polynomials of degree d agree at a random point modulo a prime p with a probability of at most
   d / p (Schwartz, Zippel); primes are drawn at random from 2**30..2**31, so that no coefficient of
   a program that was there before is a multiple of one but by chance, and all would have to agree:
   (d / 2**30) ** (2 * pairs). Two different leaves agree if the polynomials below them do, or their
   hashes, of 62 bits for each pair, collide.
5. *Error.* If output and definition differ in some scalar, acceptance needs the agreement of that
   pair of different terms, or of a pair of different leaves below it. Of one operator that sums,
   these are few (`prover.FEW`); else there are at most n * n / 2, n being the number of leaves of
   program and definition together; or that one of them was taken for one of the 2**25 numbers
   whose leaves are computed. The result states the sum of their probabilities.

What `prove` does not know it lists as unproven. It takes as given: that views and layouts of
arguments move scalars (they are asked where each goes, not trusted to keep order), that NumPy adds
and multiplies, and that the host computes its own stages of a network by the executor that defines
them. Each launch is proven for all values of the tensors that it reads, so launches and host stages
meet in the tensors of the graph.

Imports no TVM: a board installs this room.
"""

from __future__ import annotations

from vtaops.base.proof import Proof
from vtaops.proof.certificates import certified, rechecked
from vtaops.proof.prover import CHECKER, prove

__all__ = ["CHECKER", "Proof", "certified", "prove", "rechecked"]

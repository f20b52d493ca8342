"""The verifier: a proof, for one program, that every correct device runs it to the same result.

Owns the rules that make a program safe (`Rule`) and their proof. It works on the encoded words
alone, through `vtaops.machine.isa`, and shares no code with the compiler that it checks. `format`
has the rules of single instructions, `transfers` those of LOAD and STORE, `tokens` those of
synchronisation, `machine` those of memories, with the elements that loops touch (`operands`) and
who used them when: `history` on chip, `dram` for buffers.

A *correct device* has three units. Each executes its own instructions in program order, and each
instruction as the ISA defines it, as if its iterations ran one after the other. An instruction
takes its tokens before it starts and sends them after it has completed. Nothing else is promised:
units run at any speed; the stream is dispatched in program order into one command queue a unit, of
any depth; token queues hold at least the tokens that the capabilities of the device state; SRAM,
OUTPUT and SCRATCH buffers hold anything at the start, but for SCRATCH buffers with a fill, which
hold it when the program is loaded, and afterwards what earlier runs left; SRAM keeps what it holds
until something is written over it or another program runs; the store unit reads
either the accumulators or an output memory of its own that only the ALU and accumulating GEMMs
write.

**Theorem.** If `verify` returns, then on every correct device and under every interleaving the
program terminates, accesses nothing out of bounds, overflows no token queue, and leaves OUTPUT
buffers whose every byte is a function of the INPUT and PARAMETER buffers and of what was written
when it was loaded, in this run and in every later one.

Proof sketch.

1. *Happens-before.* The k-th pop of a queue takes the token of the k-th push: each queue has one
   sender and one receiver, both in order. So "i happens before k" is the transitive closure of
   program order within a unit and of the pairs push - pop. It is the same under every
   interleaving, and a vector clock for each instruction states it exactly.
2. *Termination.* Every pop's push comes earlier in program order, so program order is a linear
   extension of happens-before. Suppose the device stands still; let i be the first instruction in
   program order that has not completed. All before it have, so no command queue is full when
   dispatch comes to i, whatever the depth of the queues: i was dispatched and is the next of its
   unit. The tokens that it waits for were sent by earlier instructions, and no token queue is ever
   too full to take them (3). So i runs: a contradiction. FINISH is last, so it is reached; it
   happens after every other instruction, so nothing still runs when it completes.
3. *Capacity.* Just after its k-th push a queue holds at most k tokens less the pops that happen
   before that push; an interleaving that delays everything else attains it.
4. *Determinism.* Every element has one writing unit (inputs and weights: load; accumulators:
   compute; DRAM: store). Take two instructions of different units that touch an element, one
   writing it, i earlier in program order. Then i happens before k. It suffices to compare k with
   the last writer of the element (when k reads) and with the last reader of each other unit (when
   k writes): the earlier ones of that unit precede it in program order. So every read sees the
   same write under every interleaving, and by induction along program order the same value. No
   read sees an element that nobody wrote, and every OUTPUT byte is written. Slots of the arena are
   one memory for the order of accesses; that a LOAD reads what was stored through the buffer that
   it names is proved besides.
5. *Fill.* What is read of a filled buffer before it is written is never written: not earlier in
   this run (then it would not be read unwritten), not later, and in no other run, which executes
   the same instructions. So it holds the fill.
6. *Pinned.* A run may leave out the first `Program.pinned` instructions if the run before it,
   on the same device, was one of the same program with the same PARAMETER buffers. They are LOADs
   without tokens, so 1 to 3 hold without them, and a clock orders no access by them alone: if one
   orders k behind a pinned LOAD, k is in the load unit or waits for a later LOAD, which a
   run without them executes too. Only the load unit writes their memories, and no other LOAD
   writes their elements; so these hold at the end of the run before what the LOADs would bring.

Imports no TVM: a board installs it.
"""

from __future__ import annotations

from vtaops.machine.capabilities import FULL, Capabilities
from vtaops.program.program import Program
from vtaops.program.verifier.format import check_capabilities, check_finish, check_formats, decode
from vtaops.program.verifier.machine import Machine
from vtaops.program.verifier.rules import TOKEN_CAPACITY, Rule
from vtaops.program.verifier.tokens import check_completion, happens_before

__all__ = ["TOKEN_CAPACITY", "Rule", "verify"]


def verify(program: Program, *, capabilities: Capabilities = FULL) -> None:
    """Prove that `program` is safe and deterministic (see the theorem at the top of this file).

    Parameters
    ----------
    program : Program
        The program; only its words, relocations, micro-ops and buffers count.
    capabilities : Capabilities
        What the device can execute. Where it sets no limit to the tokens of a queue,
        `TOKEN_CAPACITY` does, which all known devices have.

    Raises
    ------
    VerificationError
        Naming an instruction that breaks a rule, its disassembly, and the `Rule`.
    """
    steps = decode(program)
    check_formats(steps)
    check_capabilities(program, capabilities)
    check_finish(program)
    happens_before(steps, capabilities.token_capacity or TOKEN_CAPACITY)
    machine = Machine(program, steps)
    machine.run()
    machine.check_outputs()
    check_completion(steps)

"""What several tests ask of a program: results, counters, the rule that it breaks."""

import numpy as np

import vtaops
from vtaops.errors import VerificationError
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program.verifier import Rule, verify
from vtaops.runtime.fsim import Fsim


def check(op, config, tiling, seed, capabilities="fsim"):
    """Compile, verify, run in the plain and in a random order; compare results and counters."""
    program = vtaops.compile(op, config, tiling, capabilities=capabilities)
    arrays = random_arguments(op, np.random.default_rng(seed))
    expected = evaluate(op, arrays)
    for order in (None, seed):
        device = Fsim(config, seed=order, capabilities=capabilities)
        np.testing.assert_array_equal(program.run(device, *arrays), expected, str((op, tiling)))
        assert device.stats() == program.stats()
        device.close()


def broken_rule(program, **options):
    """Return the rule that the verifier names, or None if it accepts."""
    try:
        verify(program, **options)
    except VerificationError as error:
        (rule,) = [rule for rule in Rule if f"the rule {rule.value!r}" in str(error)]
        return rule
    return None

"""Mutations of whole programs: the verifier rejects, or every seed of fsim agrees.

The mutations are in `trials.mutations`; the benchmark `mutation_test` makes thousands of them.
"""

from collections import Counter

import numpy as np
import pytest
from helpers.program_builder import PROGRAMS, PYNQ, TINY

from trials import mutations
from vtaops import VTAError
from vtaops.errors import VerificationError
from vtaops.machine.config import Extension


@pytest.fixture(scope="module")
def compiled():
    return mutations.compiled_programs()


@pytest.fixture(scope="module")
def linked():
    return mutations.linked_programs()


def judge(program, count, seed):
    """Judge mutants of a program; return verdicts by kind."""
    tally = Counter()
    rng = np.random.default_rng(seed)
    for mutant, verdict, reason in mutations.judge_random(program, count, seeds=4, rng=rng):
        assert verdict != mutations.FAILED, f"{mutant.kind}: {mutant.change}: {reason}"
        tally[mutant.kind, verdict] += 1
    return tally


def test_mutants_of_compiled_programs(compiled):
    tally = Counter()
    for seed, program in enumerate(compiled.values()):
        tally += judge(program, 3 * len(mutations.KINDS), seed)
    verdicts = Counter()
    for (_, verdict), count in tally.items():
        verdicts[verdict] += count
    assert all(verdicts[v] >= 50 for v in (mutations.REJECTED, mutations.SAME, mutations.OTHER))
    assert {kind for kind, _ in tally} == {*mutations.KINDS}
    assert {v for kind, v in tally if kind == "token flag"} == {mutations.REJECTED}


def test_mutants_of_linked_programs(linked):
    """Among them stores to slots in use, loads of what others left, stores to a border."""
    tally = Counter()
    for seed, program in enumerate(linked.values()):
        tally += judge(program, 2 * len(mutations.KINDS), seed)
    assert {kind for kind, _ in tally} == {*mutations.KINDS}


@pytest.mark.parametrize("config", [TINY, PYNQ], ids=lambda c: c.name)
@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_mutants_of_hand_made_programs(make, config):
    """Among them a chain through scratch DRAM, which one operator alone does not have."""
    assert judge(make(config), 2 * len(mutations.KINDS), seed=7)


@pytest.mark.parametrize("extension", Extension)
def test_mutants_of_programs_with_one_extension(extension):
    verdicts = Counter()
    programs = mutations.extension_programs(extension, 1, seed=5)
    for number, (name, program) in enumerate(programs.items()):
        jury, rng = mutations.Jury(program, 3), np.random.default_rng([5, number])
        without = ((m, *jury.judge(m)) for m in mutations.without_each_token(program))
        for mutant, verdict, reason in (*mutations.judge_random(program, 20, 3, rng), *without):
            assert verdict != mutations.FAILED, f"{name}: {mutant.kind}: {mutant.change}: {reason}"
            verdicts[verdict] += 1
    assert verdicts[mutations.REJECTED] > 20
    assert verdicts[mutations.SAME] + verdicts[mutations.OTHER] > 5


def verdict_of(program):
    try:
        program.verify()
    except VerificationError as error:
        return "rejected", str(error)
    return "accepted", ""


def test_every_token_of_a_compiled_program_is_needed(compiled, linked):
    border = "linked: border and parts"
    for name, program in {**compiled, border: linked[border]}.items():
        mutants = [*mutations.without_each_token(program)]
        assert mutants
        for mutant in mutants:
            verdict, reason = verdict_of(mutant.program)
            assert verdict == "rejected", f"{name}: {mutant.change}"
            assert "rule 'race'" in reason or "rule 'completion'" in reason


def test_the_simulator_would_show_what_the_verifier_rejects(compiled):
    """The jury is awake: without one token, results depend on the seed (or FINISH comes early)."""
    shown = 0
    for program in compiled.values():
        jury = mutations.Jury(program, seeds=6)
        garbage = np.random.default_rng(1)
        for mutant in [*mutations.without_each_token(program)][:6]:
            results = set()
            for device in jury.devices:
                try:
                    results.add(jury.outputs(mutant.program, device, garbage))
                except VTAError as error:
                    results.add(str(error))
            shown += results != {jury.expected}
    assert shown >= 15  # of about 35: six seeds need not hit every race

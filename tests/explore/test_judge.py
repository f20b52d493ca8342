"""The judge: right answers of every kind are accepted, wrong ones are refused with the reason."""

import gc
import json
import weakref
from dataclasses import asdict, replace

import numpy as np
import pytest
from typer.testing import CliRunner

import vtaops
from vtaops.base.heap import collection_paused
from vtaops.cli import app
from vtaops.explore.judge import Judge, KernelTask, Schedule, find_task, read_answer, task_names
from vtaops.explore.judge.confined import is_confined
from vtaops.ops.reference import evaluate
from vtaops.program import Buffer, Role
from vtaops.proof.congruence import Forms
from vtaops.proof.names import NameMachine
from vtaops.schedule.candidates import TilingList

TINY, SUM = "tiny/gemm", "pynq/residual_sum"
SOURCE = """
import vtaops
def program():
    print("accepted")
    return vtaops.compile(vtaops.Gemm(m=8, n=32, k=32, shift=6, clip=(0, 127)), "tiny")
"""


@pytest.fixture(scope="module")
def judge():
    return Judge(TINY)


def listing(judge):
    return judge.task.compiled.disassemble()


def test_there_are_tasks_of_every_kind():
    names = task_names()
    assert len(names) >= 24
    assert {name.partition("/")[0] for name in names} == {"tiny", "pynq", "pynq_ext", "pynq_512"}


@pytest.mark.parametrize("name", ["tiny/first", TINY, SUM, "pynq_ext/attention_head"])
def test_the_compilers_answer_is_accepted_and_above_the_bound(name):
    judge = Judge(name)
    verdict = judge(listing(judge))
    assert verdict.accepted, verdict
    assert verdict.cycles == verdict.compiler >= verdict.bound > 0
    assert str(verdict).startswith(f"{name}: accepted (proven for every input)")


def test_the_three_kinds_of_answers(judge):
    assert judge(listing(judge)).kind == "stream"
    tiling = vtaops.Tiling.parse("oc=8,ic=16,h=4")
    for answer in (tiling, judge.task.compiled, Schedule(SOURCE)):
        assert judge(answer).accepted, judge(answer)


def test_equal_answers_have_one_verdict(judge):
    assert judge(listing(judge)) is judge(listing(judge))


def edited(judge, old, new):
    text = listing(judge)
    assert old in text
    return text.replace(old, new, 1)


def test_wrong_answers_are_refused_with_the_reason(judge):
    parsed = judge(edited(judge, "GEMM ", "GEMN "))
    assert parsed.failed == "parsed"
    assert "column" in parsed.reason
    verified = judge(edited(judge, "pop_prev", ""))
    assert verified.failed == "verified"
    assert "breaks the rule" in verified.reason
    proven = judge(edited(judge, "imm 6", "imm 7"))
    assert proven.failed == "proven"
    assert "should be" in proven.reason
    given = proven.counterexample
    task = judge.task
    wanted = evaluate(task.definition, [*given.values()])
    changed = vtaops.program.assemble(edited(judge, "imm 6", "imm 7"))
    assert (changed.run("fsim", *given.values()) != wanted).any()
    assert np.array_equal(task.compiled.run("fsim", *given.values()), wanted)


def test_buffers_and_records_of_an_answer_do_not_count(judge):
    text = listing(judge)
    for old, new, reason in (
        ("weight  parameter", "weight  input", "another buffers"),
        ("32x32  int8", "16x64  int8", "another buffers"),
        ("(tiny)", "(pynq)", "another configuration"),
    ):
        assert old in text
        verdict = judge(text.replace(old, new))
        assert verdict.failed == "parsed"
        assert reason in verdict.reason
    program = judge.task.compiled
    wrong = vtaops.Gemm(m=8, n=32, k=32, shift=7, clip=(0, 127))
    lie = vtaops.compile(wrong, "tiny")  # proven, with a certificate, of its own record
    assert judge(lie).failed == "proven"
    own = Buffer("mine", Role.CONSTANT, (1, 8), "int8", program.buffers[0].layout, (1,) * 8)
    assert "buffer of its own" in judge(replace(program, buffers=(*program.buffers, own))).reason
    assert "bitstream" not in judge(vtaops.compile(wrong, "pynq")).reason
    assert judge(vtaops.compile(wrong, "pynq")).failed == "parsed"


def test_sizes_are_limited(judge):
    program = judge.task.compiled
    many = replace(
        program,
        instructions=np.concatenate([program.instructions[:1]] * 5_000),
        relocations=np.concatenate([program.relocations[:1]] * 5_000),
    )
    assert "instructions; " in judge(many).reason


def test_forms_tell_programs_apart(judge):
    program = judge.task.compiled
    forms, others = Forms(b"1" * 64), Forms(b"2" * 64)
    other = vtaops.compile(judge.task.definition, "tiny", vtaops.Tiling.parse("oc=8,ic=8,h=2"))
    assert forms.of(program) == forms.of(other) != others.of(program)
    assert len(other) != len(program)
    for changed in (("imm 6", "imm 7"), ("wgt +1,", "wgt +2,"), ("src +4", "src +0")):
        if changed[0] in listing(judge):
            wrong = vtaops.program.assemble(edited(judge, *changed))
            assert forms.of(wrong) != forms.of(program)


def test_the_weights_of_a_graph_are_those_of_the_task():
    judge = Judge("pynq_ext/attention_head")
    region = judge.task.region
    other = KernelTask("other", judge.task.config, find_task("pynq_ext/attention_head").definition)
    assert judge(other.compiled).accepted
    name = next(iter(region.parameters))
    assert name in {buffer.name for buffer in judge.task.buffers}
    with pytest.raises(
        vtaops.errors.ScheduleError, match="a tiling answers a task of one operator"
    ):
        judge.task.tiled(vtaops.Tiling(oc=16, ic=16, h=1))


@pytest.mark.skipif(not is_confined(), reason="this kernel has no Landlock")
def test_source_is_judged_by_what_it_hands_over(judge):
    assert judge(Schedule("def program(): return 'accepted'")).failed == "parsed"
    assert "NameError" in judge(Schedule("def program(): return vtaops")).reason


def test_the_command(tmp_path):
    run = CliRunner().invoke
    stream = tmp_path / "answer.txt"
    assert run(app, ["judge", TINY, "--start", str(stream)]).exit_code == 0
    found = run(app, ["judge", TINY, str(stream), "--json"])
    assert found.exit_code == 0
    assert json.loads(found.stdout)["accepted"]
    stream.write_text(stream.read_text().replace("imm 6", "imm 5"))
    arrays = tmp_path / "shown.npz"
    found = run(app, ["judge", TINY, str(stream), "--save", str(arrays)])
    assert found.exit_code == 1
    assert "not proven: res" in found.stdout
    assert set(np.load(arrays)) == {"data", "weight"}
    tiling = tmp_path / "tiling.json"
    tiling.write_text(json.dumps(asdict(vtaops.Tiling.parse("oc=8,ic=16,h=4"))))
    assert read_answer(tiling) == vtaops.Tiling.parse("oc=8,ic=16,h=4")
    assert run(app, ["judge", TINY, str(tiling)]).exit_code == 0
    listed = run(app, ["judge", "tiny/", "--json"])
    names = [name for name in task_names() if name.startswith("tiny/")]
    assert [row["task"] for row in json.loads(listed.stdout)] == names


def test_names_are_freed_without_garbage_collection():
    """Verdicts pause the collector: what a verdict leaves behind must not wait for it."""
    machine = NameMachine(find_task("tiny/conv2d").compiled)
    machine.run()
    gone = weakref.ref(machine)
    with collection_paused():
        assert not gc.isenabled()
        del machine
        assert gone() is None
    assert gc.isenabled()


@pytest.mark.parametrize("name", ["pynq/max_pool", "pynq_ext/max_pool", "tiny/max_pool"])
def test_default_tilings_of_small_pools_are_near_the_best_of_a_search(name):
    task = find_task(name)
    listed = TilingList(task.definition, task.config).of_each_size(task.config, 12)
    assert task.cycles <= 1.06 * min(task.tiled(tiling).cycles() for tiling in listed)

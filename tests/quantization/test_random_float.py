"""Random float networks keep what float computes, as files and as compiled models."""

import pytest

from trials.random_float import check, network


@pytest.mark.parametrize(
    ("seed", "scales", "zeros"),
    [
        (3, "free", True),  # these lost an activation before a residual
        (20, "pow2", True),
        (25, "free", True),
        (30, "free", True),
        (5, "pow2", False),  # a Pad by a constant
        (6, "free", False),
    ],
)
def test_a_file_keeps_what_float_computes(seed, scales, zeros):
    result = check(seed, scales, zeros)
    assert result["error"] == ""
    assert result["file"] > result["runtime"] - 14


def test_a_compiled_model_keeps_what_its_file_computes():
    result = check(62, "pow2", False, "pynq")
    assert result["error"] == ""
    assert result["model"] > 30


def test_batches_are_drawn():
    inputs = [network(seed)[0].graph.input[0] for seed in range(12)]
    assert {value.type.tensor_type.shape.dim[0].dim_value for value in inputs} == {1, 2, 3, 4}

"""Operators of ONNX with drawn attributes; `trials onnx_schemas` runs thousands, and chains."""

import pytest

from trials.onnx_schemas import CAMPAIGN, KINDS, trial


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_and_optional_inputs_mean_what_they_mean_in_onnxruntime(kind):
    assert not [each for number in range(10) for each in trial(f"{kind}/{number}")["failed"]]


@pytest.mark.parametrize(
    "case",
    [
        *("MaxPool/37", "AveragePool/15", "Gemm/7", "LayerNormalization/0", "Add/15", "Min/88"),
        *("Sum/20", "Identity/50", "Clip/4", "Pad/29", "LRN+Expand+Identity/2548", "Clip+Sub/525"),
    ],
)
def test_files_that_were_wrong_or_refused(case):
    assert [*trial(case)["counts"].values()] == [{"right": True}]


def test_operators_that_follow_each_other():
    chains = [case for case in CAMPAIGN.cases(1000) if "+" in case]
    assert not [each for case in chains for each in trial(case)["failed"]]

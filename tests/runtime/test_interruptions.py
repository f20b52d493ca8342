"""What a call that was interrupted leaves: the next one is right."""

import pytest

from trials.interruptions import SUBJECTS, trial


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_call_after_an_interrupted_one_is_right(subject):
    assert not [found for number in (7, 9) for found in trial(f"{subject}/{number}")["failed"]]

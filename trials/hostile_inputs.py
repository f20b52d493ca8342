"""Files, requests and answers with wrong content: documented errors only, in bounds.

None may take more than 20 s of processor time or more memory than twice its size and 500 MB, or
lead to another file. They come in portions of 250, each with its seed.
"""

from __future__ import annotations

from functools import partial

from trials.campaign import Campaign, Result, result
from trials.hostile_boards import fuzz_answers
from trials.hostile_clients import fuzz_requests
from trials.hostile_files import FORMATS, fuzz

PORTION = 250

FUZZERS = {
    "request": fuzz_requests,
    "answer": fuzz_answers,
    **{name: partial(fuzz, name) for name in FORMATS},
}
"""By format: uses that many files, of a seed."""


def trial(case: str) -> Result:
    """Use the files of one portion: ``model/7``."""
    name, _, number = case.rpartition("/")
    FUZZERS[name](PORTION, int(number))
    return result(name, files=PORTION)


CAMPAIGN = Campaign(
    lambda count: [f"{name}/{n}" for n in range(-(-count // PORTION)) for name in FUZZERS],
    trial,
    count=10_000,
)

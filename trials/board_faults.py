"""Random faults of a board and its network: is a wrong result ever accepted, does anything hang.

Each injection picks a fault, an occasion for it (the first message of a call, the fifth, ...), and
an operator; the call must give NumPy's result or an error in time, and the next call, without a
fault, NumPy's result. The board is virtual; the network is loopback.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, defaultdict

import numpy as np

from trials.campaign import Campaign, Result
from trials.faults import Fault, Faults, FaultyServer, FaultyVirtualBoard
from vtaops import Conv2d, Gemm, HardwareConfig, Session, VTAError
from vtaops.board import BitFile
from vtaops.board.pynq import Accelerator
from vtaops.hardware.registers import RegisterMap
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime.remote import RemoteDevice

LAUNCH_SECONDS = 0.1
MESSAGE_SECONDS = 0.5
MOST_OCCASIONS = 12  # messages of a call that places its program

OPERATORS = (
    Gemm(m=4, n=32, k=32, shift=3, clip=(0, 127)),
    Gemm(m=1, n=100, k=70, bias=True, shift=2, clip=(0, 127)),
    Conv2d(
        in_channels=16,
        out_channels=32,
        height=7,
        width=7,
        kernel=3,
        padding=1,
        shift=4,
        clip=(0, 127),
    ),
    Conv2d(
        in_channels=40,
        out_channels=20,
        height=9,
        width=5,
        kernel=1,
        padding=1,
        shift=3,
        clip=(0, 127),
    ),
)


class Bench:
    """One virtual board, its server, one client that lives through everything."""

    def __init__(self, design: RegisterMap, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.faults = Faults()
        config = HardwareConfig.load("pynq")
        accelerator = Accelerator(
            config, design, FaultyVirtualBoard(config, design, faults=self.faults)
        )
        self.server = FaultyServer(accelerator, port=0, faults=self.faults)
        self.bitstream = BitFile(
            "vta", "7z020clg484", "2026/01/01", "0:00:00", bytes.fromhex("aa995566") * 64
        ).to_bytes()
        self.design = design

    def run(self, count: int) -> Result:
        """Inject so many faults; return what came of them."""
        outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        with self.server:
            device = RemoteDevice(self.server.address, timeout=MESSAGE_SECONDS)
            device.program(self.bitstream, self.design.value)
            with Session(device, timeout=LAUNCH_SECONDS) as session:
                for _ in range(count):
                    fault = self.random.choice(list(Fault))
                    outcomes[fault.value][self.inject(session, device, fault)] += 1
                    self.faults.clear()
                    if not device.info()["programmed"]:
                        device.program(self.bitstream, self.design.value)
                    outcomes[fault.value]["next call " + self.call(session)] += 1
                    if self.random.random() < 0.1:  # somebody else comes by
                        with Session(self.server.address, "pynq") as other:
                            outcomes["another session"]["next call " + self.call(other)] += 1
        failed = [
            f"{fault}: {outcome}"
            for fault, counted in outcomes.items()
            for outcome in counted
            if "WRONG" in outcome or (outcome.startswith("next") and "right" not in outcome)
        ]
        counts = {fault: {**counted} for fault, counted in outcomes.items()}
        return {"counts": counts, "failed": failed}

    def inject(self, session: Session, device: RemoteDevice, fault: Fault) -> str:
        """Return "right", "WRONG" or the name of the error of a call with a fault."""
        if fault is Fault.REFUSE_PROGRAMMING:
            self.faults.inject(fault)
            try:
                device.program(self.bitstream, self.design.value)
            except VTAError as error:
                return type(error).__name__
            return "WRONG"
        single = fault in (Fault.HANG, Fault.LATE_DONE)  # one occasion in each call
        self.faults.inject(fault, after=0 if single else self.random.randrange(MOST_OCCASIONS))
        return self.call(session)

    def call(self, session: Session) -> str:
        """Run a random operator; return "right", "WRONG" or the name of the error."""
        op = self.random.choice(OPERATORS)
        arrays = random_arguments(op, self.numbers)
        try:
            result = session.run(op, *arrays)
        except VTAError as error:
            return type(error).__name__
        return "right" if np.array_equal(result, evaluate(op, arrays)) else "WRONG"


PORTION = 50
"""Injections of a case, on one board and through one client."""


def trial(case: str) -> Result:
    """Inject a portion of faults into a board of one design: ``hls/7``."""
    logging.getLogger("vtaops.board").setLevel(logging.CRITICAL)  # crashes are expected
    design, _, number = case.partition("/")
    return Bench(RegisterMap(design), int(number)).run(PORTION)


CAMPAIGN = Campaign(
    lambda count: [
        f"{design.value}/{n}" for n in range(-(-count // (2 * PORTION))) for design in RegisterMap
    ],
    trial,
    count=1000,
)

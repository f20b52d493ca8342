"""Model: a compiled network that runs on any device with its configuration.

Created by `vtaops.compile_model`, or read from a file; independent of the compiler. Imports no TVM,
so a board can run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from vtaops.base.agreement import Agreement
from vtaops.base.errors import ArgumentError
from vtaops.base.forks import ForkLock
from vtaops.base.names import checked_call, checked_init, suggestion
from vtaops.base.progress import tracked
from vtaops.base.proof import Proof
from vtaops.base.shapes import Array
from vtaops.graph import Graph
from vtaops.graph.executor import batches, checked_inputs, evaluate_runs
from vtaops.machine.capabilities import Capabilities
from vtaops.machine.config import HardwareConfig
from vtaops.model.report import ModelReport, report
from vtaops.model.state import Kept, State, kept_on_device
from vtaops.program import Program, Statistics
from vtaops.program.region import HostStage, NodePlacement, Region, Stage
from vtaops.runtime import NETWORK_TIMEOUT, ResidentPrograms, open_device
from vtaops.runtime.executor import Held

if TYPE_CHECKING:
    from vtaops.model.export.bundle import Bundle
    from vtaops.model.export.stages import Run
    from vtaops.program.timing import TimingParameters


_NOT_COMPARED = Agreement(reason="nobody asked for it")


class HasResidents(Protocol):
    """A session: keeps programs in the memory of its device."""

    @property
    def residents(self) -> ResidentPrograms:
        """The resident programs."""


@checked_init
@dataclass(eq=False, repr=False)
class Model:
    """A compiled network.

    Parameters
    ----------
    graph : Graph
        The network.
    config : HardwareConfig
        Target configuration.
    capabilities : Capabilities
        Capabilities of the target device.
    plan : sequence of NodePlacement
        Placement of each operator, and the reason: one row per operator.
    stages : sequence of Region and HostStage
        The stages of a run, in order.
    agreement : Agreement, optional
        How the graph compares with the file that it came from.

    Examples
    --------
    >>> model = vtaops.load_model("network.vtam")
    >>> scores = model.run(image)
    """

    graph: Graph
    config: HardwareConfig
    capabilities: Capabilities
    plan: tuple[NodePlacement, ...]
    stages: tuple[Stage, ...]
    agreement: Agreement = _NOT_COMPARED

    def __post_init__(self) -> None:
        self.plan, self.stages = tuple(self.plan), tuple(self.stages)
        self._own: ResidentPrograms | None = None
        self._lock = ForkLock()
        self._stages: dict[HostStage, Run] = {}
        self._state: State | None = None

    def __repr__(self) -> str:
        on_vta = sum(len(region.nodes) for region in self.regions)
        launches = f"{len(self.regions)} launch{'' if len(self.regions) == 1 else 'es'}"
        return (
            f"<Model {self.name} for {self.config.name}: {on_vta} of {len(self.plan)} operators on "
            f"VTA, {launches}>"
        )

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    @property
    def name(self) -> str:
        """The name of the network."""
        return self.graph.name

    @property
    def regions(self) -> tuple[Region, ...]:
        """The VTA regions: one launch each."""
        return tuple(stage for stage in self.stages if isinstance(stage, Region))

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of the regions."""
        return tuple(region.program for region in self.regions)

    # ------------------------------------------------------------------------ running

    @checked_call
    def run(
        self,
        *arrays: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        session: HasResidents | None = None,
        state: State | None = None,
        **named: npt.ArrayLike,
    ) -> Any:
        """Run the network once, or once for each batch that the arrays hold.

        Parameters
        ----------
        arrays : array_like, or one mapping of str to array_like
            One for each input of the graph, in order: any numbers if the network takes float32,
            else its integers; lists and tensors of PyTorch too. Or all of them by name:
            ``model.run({"image": x})``. Eight images for a network of batch 1 are eight runs, one
            after the other, whose outputs are joined along the first axis. State is not among them.
        session : Session, optional
            Session to run in, by default fsim with the model's
            configuration. Programs and weights stay resident in its device.
        state : State, optional
            What the runs before left, and where, of a network with state (`new_state`); by default
            a state of the model, which `reset` and another session begin anew.
        named : array_like
            Inputs by name, after the positional ones.

        Returns
        -------
        ndarray or tuple of ndarray
            The output, or a tuple of all outputs, those left out that are state.

        Raises
        ------
        ArgumentError
            If both a session and a state are given.
        ShapeError
            If the arrays do not fit, or an input name is unknown.
        ConfigError
            If the device has another configuration.
        DeviceError
            If the device fails; the next run reloads lost programs. If the device lost the state,
            or a run was interrupted while it wrote its rows: reset it.
        """
        if state and session:
            raise ArgumentError("a state and a session are given; the state has a session")
        state = state or self._own_state(self._residents_of(session))
        given = self._batches(arrays, named)
        with state.lock:
            return _joined([self._run(each, state) for each in given])

    @checked_call
    def new_state(
        self,
        session: HasResidents | None = None,
        values: Mapping[str, Array] | None = None,
        place: int = 0,
    ) -> State:
        """Return a state of its own, for `run`: several stand beside each other.

        Parameters
        ----------
        session : Session, optional
            As of `run`. A tensor that only launches touch, all in one image, stays in the memory of
            its device; the host holds the others (`State.on_device`).
        values : mapping of str to ndarray, optional
            What the inputs of state are at first, as `State.values` returns them; by default 0.0.
        place : int
            Rows of them that are written, of state that grows (`State.place`).

        Raises
        ------
        ArgumentError, ShapeError
            If a value is no state, or does not fit.
        """
        return State(self.graph, self._kept, self._residents_of(session), values, place)

    def reset(self) -> None:
        """Begin again: the next `run` without a state of its own finds the first values."""
        with self._lock:
            if self._state is not None:
                self._state.reset()
            self._state = None

    @cached_property
    def _kept(self) -> dict[str, Kept]:
        """State that stays on devices: the same for each conversation."""
        return kept_on_device(self.graph, self.stages)

    def _own_state(self, residents: ResidentPrograms) -> State:
        if not self.graph.state:  # threads run beside each other
            return State(self.graph, {}, residents)
        if self._state is None or self._state.residents is not residents:
            self.reset()
            self._state = State(self.graph, self._kept, residents)
        return self._state

    def _run(self, arrays: Sequence[npt.ArrayLike], state: State) -> tuple[Array, ...]:
        """Run the network once; return all results."""
        values = checked_inputs(self.graph.arguments, arrays) | state.on_host()
        for stage in tracked("run stage", self.stages, describe):
            if isinstance(stage, HostStage):
                values.update(self._on_host(stage)(values))
            else:
                values.update(launch(stage, values, state.residents, state.held(stage)))
        state.keep(values)
        return tuple(values[tensor.name] for tensor in self.graph.results)

    @checked_call
    def reference(
        self, *arrays: npt.ArrayLike | Mapping[str, npt.ArrayLike], **named: npt.ArrayLike
    ) -> Any:
        """Compute the expected result of `run` from the graph with NumPy, from the first state on.

        Raises
        ------
        ShapeError
            As `run`.
        """
        return _joined(list(evaluate_runs(self.graph, self._batches(arrays, named))))

    def _batches(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> list[list[Array]]:
        """Return the arrays of each run of a call, in the order of the inputs."""
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            named, arrays = {**arrays[0], **named}, arrays[1:]
        waited = [tensor.name for tensor in self.graph.arguments[len(arrays) :]]
        for name in named:
            if name not in waited:
                known = ", ".join(waited) or "none"
                hint = suggestion(name, waited)
                raise ArgumentError(f"no input {name!r} is left{hint}; left are: {known}")
        arrays += tuple(named[name] for name in waited if name in named)
        return batches(self.graph.arguments, arrays)

    def _on_host(self, stage: HostStage) -> Run:
        from vtaops.model.export.stages import host_stage

        with self._lock:
            if stage not in self._stages:
                self._stages[stage] = host_stage(stage, self.graph)
            return self._stages[stage]

    def _residents_of(self, session: HasResidents | None) -> ResidentPrograms:
        if session is not None:
            if not hasattr(session, "residents"):
                raise ArgumentError(f"session is {session!r}; it must be a Session")
            return session.residents
        with self._lock:
            if self._own is None:
                self._own = ResidentPrograms(open_device("fsim", self.config), NETWORK_TIMEOUT)
            return self._own

    # ---------------------------------------------------------------------- knowledge

    def stats(self) -> Statistics:
        """Return the predicted counters of a run, without running: the sum over all launches."""
        return sum((program.stats() for program in self.programs), Statistics())

    @checked_call
    def cycles(self, timing: TimingParameters | None = None) -> int:
        """Return the predicted cycles of all launches of a run, by the timing model.

        Parameters
        ----------
        timing : TimingParameters, optional
            The machine; by default that of ``tsim``.
        """
        return sum(program.cycles(timing) for program in self.programs)

    @checked_call
    def steady_cycles(self, timing: TimingParameters | None = None) -> int:
        """Return the predicted cycles of a run whose weights are still on the chip.

        Equal to `cycles` unless the model was compiled with ``pin_weights=True``.

        Parameters
        ----------
        timing : TimingParameters, optional
            The machine; by default that of ``tsim``.
        """
        return sum(program.steady.cycles(timing) for program in self.programs)

    def verify(self) -> None:
        """Prove that every program is safe and deterministic on every device of its kind.

        Raises
        ------
        VerificationError
            If one is not; the message names the instruction and the rule that it breaks.
        """
        for program in self.programs:
            program.verify(self.capabilities)

    @checked_call
    def prove(self, *, seed: int | None = None) -> Proof:
        """Prove that every launch computes its graph nodes, for all data; see `vtaops.prove`.

        Parameters
        ----------
        seed : int, optional
            Seed of the random numbers.

        Raises
        ------
        NotEquivalent
            If a launch computes something else; includes a counterexample if one was found.
        VerificationError
            If a program is not safe and deterministic.
        """
        from vtaops.proof import prove

        return prove(self, seed=seed)

    @checked_call
    def report(self, *, quality: Mapping[str, float] | None = None) -> ModelReport:
        """Return a layer-by-layer report of time and traffic; see `vtaops.model.report`.

        Parameters
        ----------
        quality : mapping, optional
            Known signal-to-quantization-noise ratios of tensors, in dB, by name.
        """
        return report(self, quality or {})

    @checked_call
    def save(self, path: str | Path) -> None:
        """Write the model to one file: programs, packed weights, graph, plan.

        Raises
        ------
        ProgramError
            If the file cannot be written.
        """
        from vtaops.model.artefact import save

        save(self, path)

    @checked_call
    def export_c(self, folder: str | Path, *, force: bool = False) -> Bundle:
        """Export the model as C99 that needs neither Python nor an operating system.

        The folder contains a blob (programs, packed weights, host steps), a runtime that interprets
        it, devices (simulator, Linux on a Zynq, bare metal), ``main.c``, and a ``Makefile``; see
        the guide ``docs/c.md``. Outputs equal those of `run`, byte for byte.

        Parameters
        ----------
        folder : str or Path
            Created if missing; the files of an earlier export are replaced.
        force : bool
            Also replace files of the same names that something else wrote.

        Returns
        -------
        Bundle
            Sizes of the blob, of the arena, and of the device's memory, in bytes.

        Raises
        ------
        UnsupportedError
            If a part of the model has no C implementation, such as a float function compiled by
            TVM; nothing is written then.
        ProgramError
            If a file cannot be written, or would replace one that something else wrote.
        """
        from vtaops.model.export.bundle import export_c

        return export_c(self, Path(folder), force=force)


def describe(stage: Stage) -> str:
    """Return a short description of a stage."""
    place = "host" if isinstance(stage, HostStage) else "VTA"
    last = f" to {stage.nodes[-1]}" if len(stage.nodes) > 1 else ""
    return f"{place}: {stage.nodes[0]}{last}"


def launch(
    region: Region,
    values: Mapping[str, Array],
    residents: ResidentPrograms,
    held: Held | None = None,
) -> dict[str, Array]:
    """Run a region's program on the tensors that it reads; return its results by tensor.

    Tensors in buffers that are held stay where they are.
    """
    held = held or {}
    arrays = [a.to_device(values[a.tensor]) for a in region.inputs if a.buffer not in held]
    made = residents.run(region.program, arrays, region.parameters, held)
    names = [b.name for b in region.program.outputs if b.name not in held]
    by_buffer = dict(zip(names, made, strict=True))
    return {
        argument.tensor: argument.from_device(by_buffer[argument.buffer])
        for argument in region.outputs
        if argument.buffer not in held
    }


def _joined(runs: Sequence[tuple[Array, ...]]) -> Any:
    """Return the outputs of runs joined along the first axis; one output by itself."""
    joined = (np.concatenate([np.atleast_1d(v) for v in each]) for each in zip(*runs, strict=True))
    results = tuple(joined) if len(runs) > 1 else runs[0]
    return results[0] if len(results) == 1 else results

"""Model: a compiled network, which runs on any device of its configuration.

Made by `vtaops.compile_model`, or read from a file; knows nothing of the compiler. Imports no TVM,
so a board runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from vtaops.base.doors import door
from vtaops.base.errors import ArgumentError, TrustError
from vtaops.base.forks import ForkLock
from vtaops.base.names import suggestion
from vtaops.base.progress import refined, tracked
from vtaops.base.proof import Proof
from vtaops.base.shapes import Array
from vtaops.graph import Graph, Host, evaluate
from vtaops.graph.executor import checked_inputs
from vtaops.machine.capabilities import Capabilities
from vtaops.machine.config import HardwareConfig
from vtaops.model.region import HostStage, Region, Row, Stage
from vtaops.model.report import layers_by_cycle
from vtaops.program import Program, Statistics
from vtaops.runtime import ResidentPrograms, open_device

if TYPE_CHECKING:
    from vtaops.model.report import ModelReport


class RunsPrograms(Protocol):
    """`ResidentPrograms`, or what stands for them elsewhere."""

    def run(
        self,
        program: Program,
        arrays: Sequence[npt.ArrayLike],
        parameters: Mapping[str, Array] | None = None,
    ) -> tuple[Array, ...]:
        """Run a program, which is loaded at its first run; return all outputs."""


class HasResidents(Protocol):
    """A session: it keeps programs in the memory of its device."""

    @property
    def residents(self) -> RunsPrograms:
        """The programs."""


class Model:
    """A network, compiled.

    Parameters
    ----------
    graph : Graph
        What it computes.
    config : HardwareConfig
        For which hardware.
    capabilities : Capabilities
        For which implementation of it.
    plan : sequence of Row
        What runs where, and why: one row for each operator.
    stages : sequence of Region and HostStage
        What runs one after the other.

    Examples
    --------
    >>> model = vtaops.load_model("network.vtam")
    >>> scores = model.run(image)
    """

    def __init__(
        self,
        graph: Graph,
        config: HardwareConfig,
        capabilities: Capabilities,
        plan: Sequence[Row],
        stages: Sequence[Stage],
    ) -> None:
        self.graph = graph
        self.config = config
        self.capabilities = capabilities
        self.plan = tuple(plan)
        self.stages = tuple(stages)
        self._own: ResidentPrograms | None = None
        self._lock = ForkLock()
        self._stages: dict[HostStage, Callable[[Mapping[str, Array]], dict[str, Array]]] = {}

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
        """What VTA executes: one launch each."""
        return tuple(stage for stage in self.stages if isinstance(stage, Region))

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of the regions."""
        return tuple(region.program for region in self.regions)

    # ------------------------------------------------------------------------ running

    def run(
        self,
        *arrays: npt.ArrayLike,
        session: HasResidents | None = None,
        progress: Callable[[str], None] | None = None,
        **named: npt.ArrayLike,
    ) -> Any:
        """Run once.

        Parameters
        ----------
        arrays : array_like
            One for each input of the graph, in order: float32 where the network takes float32.
        session : Session, optional
            Where, also a session of `vtaops.board.rpc`; by default fsim of the model's
            configuration. Programs and weights stay in the memory of its device.
        progress : callable, optional
            Called with a text before each stage.
        named : array_like
            Inputs by their names, after those by position.

        Returns
        -------
        ndarray or tuple of ndarray
            The output, or all of them.

        Raises
        ------
        ShapeError
            If the arrays do not fit, or an input has another name.
        ConfigError
            If the device has another configuration.
        DeviceError
            If the device fails; the next run loads what it has lost.
        TrustError
            If it comes from a file with machine code, and was loaded without ``trusted=True``.
        """
        self._require_trust()
        values = checked_inputs(self.graph.inputs, self._in_order(arrays, named))
        residents = self._residents() if session is None else session.residents
        for stage in tracked("run stage", self.stages, describe):
            if progress is not None:
                progress(describe(stage))
            if isinstance(stage, HostStage):
                values.update(self._on_host(stage)(values))
            else:
                with refined("simulate cycle", layers_by_cycle(stage.program)):
                    values.update(_launch(stage, values, residents))
        results = tuple(values[tensor.name] for tensor in self.graph.outputs)
        return results[0] if len(results) == 1 else results

    def reference(self, *arrays: npt.ArrayLike, **named: npt.ArrayLike) -> Any:
        """Return what `run` must return, computed by NumPy from the graph.

        Raises
        ------
        ShapeError, TrustError
            As `run`.
        """
        self._require_trust()
        results = evaluate(self.graph, *self._in_order(arrays, named))
        return results[0] if len(results) == 1 else results

    def _in_order(
        self, arrays: tuple[npt.ArrayLike, ...], named: dict[str, npt.ArrayLike]
    ) -> tuple[npt.ArrayLike, ...]:
        """Return the arrays of a call in the order of the inputs."""
        waited = [tensor.name for tensor in self.graph.inputs[len(arrays) :]]
        for name in named:
            if name not in waited:
                known = ", ".join(waited) or "none"
                hint = suggestion(name, waited)
                raise ArgumentError(f"no input {name!r} is left{hint}; left are: {known}")
        return (*arrays, *(named[name] for name in waited if name in named))

    def _require_trust(self) -> None:
        """Refuse machine code of a file before anything runs."""
        hosts = [node.op for node in self.graph.nodes if isinstance(node.op, Host)]
        stored = [op for op in hosts if not op.function.trusted]
        if not stored:
            return
        nbytes = sum(len(op.function.to_bytes()) for op in stored)
        names = {name for op in stored for name in op.operators}
        computed = ", ".join(sorted(names)) or "unnamed"
        raise TrustError(
            f"the file of {self.name!r} holds machine code for this host: {len(stored)} functions "
            f"of {nbytes:,} bytes in all, which it says compute {computed[:200]!r}. They would run "
            f"with your rights. If you trust whoever made the file: load_model(path, "
            f"trusted=True), or vtaops run FILE --trust"
        )

    def _on_host(self, stage: HostStage) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        with self._lock:
            if stage not in self._stages:
                self._stages[stage] = door("Model.run")(stage, self.graph)
            return self._stages[stage]

    def _residents(self) -> ResidentPrograms:
        with self._lock:
            if self._own is None:
                self._own = ResidentPrograms(open_device("fsim", self.config))
            return self._own

    # ---------------------------------------------------------------------- knowledge

    def stats(self) -> Statistics:
        """Return the counters that a run will show, without running: the sum of all launches."""
        return sum((program.stats() for program in self.programs), Statistics())

    def cycles(self) -> int:
        """Return the cycles of all launches of a run, by the timing model, without running."""
        return sum(program.cycles() for program in self.programs)

    def verify(self) -> None:
        """Prove that every program is safe and deterministic on every device of its kind.

        Raises
        ------
        VerificationError
            Naming the instruction and the rule that it breaks.
        """
        for program in self.programs:
            program.verify(self.capabilities)

    def prove(self, *, rounds: int | None = None, seed: int | None = None) -> Proof:
        """Prove that every launch computes its nodes of the graph, for all data: `vtaops.prove`.

        Parameters
        ----------
        rounds : int, optional
            Pairs of prime fields: each multiplies the probability of error. By default as many
            as bring it below 2**-54.
        seed : int, optional
            Of the random numbers.

        Raises
        ------
        NotEquivalent
            If a launch computes something else, with inputs that show it.
        VerificationError
            If a program is not safe and deterministic.
        """
        proof: Proof = door("Model.prove")(self, rounds=rounds, seed=seed)
        return proof

    def certified(self, proof: Proof) -> Model:
        """Return the model with a certificate of its proof in each program.

        Raises
        ------
        ProgramError
            If something is unproven.
        """
        model: Model = door("Model.certified")(self, proof)
        return model

    def report(self, *, quality: Mapping[str, float] | None = None) -> ModelReport:
        """Return where the time goes, layer by layer; see `vtaops.model.report`.

        Parameters
        ----------
        quality : mapping, optional
            Signal to quantisation noise of tensors, in dB, by name, where it is known.
        """
        from vtaops.model.report import report

        return report(self.name, self.config, self.plan, self.regions, quality or {})

    def save(self, path: str | Path) -> None:
        """Write the model to one file: programs, packed weights, graph, plan.

        Raises
        ------
        ProgramError
            If the file cannot be written.
        """
        door("Model.save")(self, path)

    def export_c(self, folder: str | Path) -> Any:
        """Write the model as C99 that needs neither Python nor an operating system.

        The folder has a blob (programs, packed weights, steps of the host), a runtime that
        interprets it, devices (simulator, Linux on a Zynq, bare metal), ``main.c``, and a
        ``Makefile``; ``docs/c.md`` is the guide. Outputs equal those of `run`, byte for byte.

        Parameters
        ----------
        folder : str or Path
            Made if it is not there; files of the same names are replaced.

        Returns
        -------
        vtaops.export.bundle.Bundle
            The bytes of the blob, of the arena, and of the device's memory.

        Raises
        ------
        UnsupportedError
            If a part of the model has no C code, such as a float function that TVM compiled;
            nothing is written then.
        ProgramError
            If a file cannot be written.
        """
        return door("Model.export_c")(self, folder)


def describe(stage: Stage) -> str:
    """Return a stage in a few words."""
    place = "host" if isinstance(stage, HostStage) else "VTA"
    last = f" to {stage.nodes[-1]}" if len(stage.nodes) > 1 else ""
    return f"{place}: {stage.nodes[0]}{last}"


def _launch(
    region: Region, values: Mapping[str, Array], residents: RunsPrograms
) -> dict[str, Array]:
    arrays = [argument.to_device(values[argument.tensor]) for argument in region.inputs]
    made = residents.run(region.program, arrays, region.parameters)
    by_buffer = dict(zip((b.name for b in region.program.outputs), made, strict=True))
    return {
        argument.tensor: argument.from_device(by_buffer[argument.buffer])
        for argument in region.outputs
    }

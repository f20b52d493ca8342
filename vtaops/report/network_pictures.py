"""Pictures of whole networks: timelines of launches, roofline of layers.

matplotlib is imported only by the functions that draw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vtaops.model.report import layer_cycles, part
from vtaops.program.timing import TimingParameters
from vtaops.program.timing.interactive import interactive
from vtaops.report.roofline import RooflinePoint, roofline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vtaops.model import Model


def network_page(*models: Model) -> str:
    """Return the timelines of all launches as one self-contained page.

    Several models, such as one network with and without an extension, are shown one below the
    other.
    """
    timelines, titles = [], []
    for model in models:
        name = f"{model.name} on {model.config.name}" if len(models) > 1 else model.name
        for number, program in enumerate(model.programs, 1):
            timelines.append(program.timeline())
            titles.append(f"{name}, launch {number}" if len(model.programs) > 1 else name)
    return interactive(timelines, titles)


def network_roofline(model: Model) -> Figure:
    """Draw the roofline of each layer, against the array and the DRAM port.

    Cycles are those of the layer in the network; its own ceiling is set by its tile products,
    resets and vector ALU passes. Labels number the VTA operators in order of execution; a layer
    whose loads overlapped with the previous layer can lie above the slope.

    Raises
    ------
    ShapeError
        If nothing of the network runs on VTA.
    """
    points: list[RooflinePoint] = []
    for region in model.regions:
        for record, cycles in layer_cycles(region.program.timeline()):
            own = part(region.program, record)
            stats = own.stats()
            reads = stats.dram_nbytes - stats.out_store_nbytes + own.instructions.nbytes
            points.append(
                RooflinePoint(
                    f"#{len(points)}",
                    stats.gemm_counter * model.config.macs_per_micro_op,
                    max(reads, stats.out_store_nbytes),
                    stats.gemm_counter // model.config.products_per_cycle + stats.alu_counter,
                    max(1, cycles),
                )
            )
    width = TimingParameters().port_width(model.config)
    title = f"{model.name} on {model.config.name}: share of the array in use"
    total = RooflinePoint.total("together", [(point, 1) for point in points])
    return roofline(points, model.config.macs_per_cycle, width, total, title)

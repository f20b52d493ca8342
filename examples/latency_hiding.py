"""Where the cycles go: the tutorial's convolution with one and with two virtual threads.

python examples/latency_hiding.py

Prints where each unit spends its time, and writes an interactive page of both schedules.
"""

from vtaops import Conv2d, Tiling, compile
from vtaops.report import interactive, write_text

op = Conv2d(
    in_channels=256,
    out_channels=256,
    height=14,
    width=14,
    kernel=3,
    padding=1,
    shift=8,
    clip=(0, 127),
)
timelines = {}
for threads in (1, 2):
    program = compile(op, "pynq", Tiling(oc=128, ic=16, h=7, w=14, oc_threads=threads))
    timeline = timelines[f"virtual threads: {threads}"] = program.timeline()
    print(f"=== virtual threads: {threads}; {timeline.cycles:,} cycles")
    for unit in timeline.units.values():
        waits = ", ".join(f"{cause} {cycles:,}" for cause, cycles in unit.waiting.items())
        print(f"{unit.unit:<8} works {unit.work:>9,} cycles; waits: {waits}")

one, two = (timeline.cycles for timeline in timelines.values())
print(f"Hiding the loads makes the convolution {one / two:.2f} times as fast.")
page = interactive(list(timelines.values()), list(timelines), window=(0, 70_000))
write_text("latency_hiding.html", page)
print("Open latency_hiding.html in a browser.")

"""Draws the pictures of the tutorials: python docs/tutorials/draw.py."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

import vtaops
from vtaops import Conv2d, Tiling
from vtaops.report import save_figure, spacetime

FOLDER = Path(__file__).parent / "images"
DRAM, INP, WGT, ACC, INK = "#dddddd", "#8ecae6", "#ffb703", "#90be6d", "#333333"


def figure(width, height):
    """Return a figure without axes."""
    fig, axes = plt.subplots(figsize=(width, height))
    axes.set_aspect("equal")
    axes.axis("off")
    return fig, axes


def save(fig, name):
    """Write a picture."""
    fig.savefig(FOLDER / name, dpi=110, bbox_inches="tight")
    plt.close(fig)


def tiling():
    """Draw a matrix and the order of its tiles in memory."""
    fig, axes = figure(8, 3.6)
    colours = [INP, WGT, ACC, "#f28482"]
    for row in range(8):
        for column in range(8):
            number = row // 4 * 2 + column // 4
            axes.add_patch(Rectangle((column, 7 - row), 1, 1, fc=colours[number], ec="white"))
    for number in range(4):
        x, y = number % 2 * 4 + 2, 6 - number // 2 * 4
        axes.text(x, y, f"tile {number}", ha="center", va="center", color=INK)
    axes.text(4, 8.4, "a matrix of numbers (N, K)", ha="center", color=INK)
    axes.add_patch(
        FancyArrowPatch((8.4, 4), (10.4, 4), arrowstyle="-|>", mutation_scale=18, color=INK)
    )
    for number in range(4):
        for index in range(16):
            x, y = 11 + index % 16 * 0.62, 6.2 - number * 1.5
            axes.add_patch(Rectangle((x, y), 0.6, 1, fc=colours[number], ec="white"))
        axes.text(21.2, 6.7 - number * 1.5, f"tile {number}", va="center", color=INK)
    axes.text(16, 8.4, "in DRAM: (N/16, K/16, 16, 16), tile after tile", ha="center", color=INK)
    axes.set_xlim(-0.5, 23.5)
    axes.set_ylim(-0.5, 9)
    save(fig, "tiling.png")


def padding():
    """Draw what LOAD reads of DRAM, and what it writes to the scratchpad."""
    fig, axes = figure(8, 3.6)
    for y in range(6):
        for x in range(6):
            axes.add_patch(Rectangle((x, y), 1, 1, fc=INP if y >= 3 else DRAM, ec="white"))
    axes.text(3, 6.5, "the image in DRAM; a tile reads 3 rows", ha="center", color=INK)
    axes.add_patch(
        FancyArrowPatch((6.5, 4), (9.5, 4), arrowstyle="-|>", mutation_scale=18, color=INK)
    )
    axes.text(8, 4.4, "one LOAD", ha="center", color=INK)
    for y in range(4):
        for x in range(8):
            inside = 0 < x < 7 and y < 3
            axes.add_patch(Rectangle((10 + x, 2 + y), 1, 1, fc=INP if inside else "white", ec=INK))
            if not inside:
                axes.text(10.5 + x, 2.5 + y, "0", ha="center", va="center", color=INK)
    axes.text(14, 6.5, "the scratchpad: zeros above and at both sides", ha="center", color=INK)
    axes.text(14, 1.3, "y_pad_top 1, x_pad_left 1, x_pad_right 1", ha="center", color=INK)
    axes.set_xlim(-0.5, 18.5)
    axes.set_ylim(-0.5, 7)
    save(fig, "padding.png")


def dataflow():
    """Draw the stages of the convolution, in the memory where each lives."""
    fig, axes = figure(9, 3.4)
    places = {
        "data": (0, 3, DRAM),
        "kernel": (0, 0, DRAM),
        "data_buf": (4, 3, INP),
        "kernel_buf": (4, 0, WGT),
        "res_conv": (8, 1.5, ACC),
        "res_shr": (12, 1.5, ACC),
        "res_max": (16, 1.5, ACC),
        "res_min": (20, 1.5, ACC),
        "res": (24, 1.5, DRAM),
    }
    for name, (x, y, colour) in places.items():
        box = FancyBboxPatch((x, y), 3, 1.2, boxstyle="round,pad=0.05", fc=colour, ec=INK)
        axes.add_patch(box)
        axes.text(x + 1.5, y + 0.6, name, ha="center", va="center", color=INK)
    arrows = [
        ("data", "data_buf", "LOAD, pads"),
        ("kernel", "kernel_buf", "LOAD"),
        ("data_buf", "res_conv", ""),
        ("kernel_buf", "res_conv", "GEMM"),
        ("res_conv", "res_shr", "ALU"),
        ("res_shr", "res_max", "ALU"),
        ("res_max", "res_min", "ALU"),
        ("res_min", "res", "STORE"),
    ]
    for source, target, text in arrows:
        (x0, y0, _), (x1, y1, _) = places[source], places[target]
        start, end = (x0 + 3.05, y0 + 0.6), (x1 - 0.05, y1 + 0.6)
        axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12, color=INK))
        axes.text((start[0] + end[0]) / 2, min(y0, y1) - 0.5, text, ha="center", size=8, color=INK)
    for row, (name, colour) in enumerate(
        {"DRAM": DRAM, "inp": INP, "wgt": WGT, "acc": ACC}.items()
    ):
        axes.add_patch(Rectangle((14 + 3 * row, 4.2), 0.8, 0.8, fc=colour, ec=INK))
        axes.text(15 + 3 * row, 4.6, name, va="center", color=INK)
    axes.set_xlim(-0.5, 28)
    axes.set_ylim(-1, 5.4)
    save(fig, "dataflow.png")


def latency_hiding():
    """Draw one and two virtual threads of the same convolution, cycle by cycle."""
    op = Conv2d(
        in_channels=64, out_channels=64, height=14, width=14, kernel=3, padding=1, clip=(0, 127)
    )
    tilings = {
        "one thread": Tiling(oc=64, ic=16, h=7, w=14),
        "two virtual threads": Tiling(oc=32, ic=16, h=7, w=14, oc_threads=2),
    }
    found = [vtaops.compile(op, "pynq", tiling).timeline() for tiling in tilings.values()]
    save_figure(spacetime(found, list(tilings), (0, 20000)), FOLDER / "latency_hiding.png")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for draw in (tiling, padding, dataflow, latency_hiding):
        draw()

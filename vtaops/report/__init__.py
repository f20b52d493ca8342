"""Reports: statistics, cycles, space-time diagrams, roofline, exploration.

Every report is a function of programs and timelines. matplotlib is imported only by the functions
that draw.
"""

from vtaops.program.timing.interactive import interactive
from vtaops.report.chrome_trace import chrome_trace
from vtaops.report.exploration import exploration_page, exploration_table
from vtaops.report.files import save_figure, write_text
from vtaops.report.roofline import RooflinePoint, roofline
from vtaops.report.spacetime import spacetime
from vtaops.report.statistics import performance_table, statistics_data, statistics_table

__all__ = [
    "RooflinePoint",
    "chrome_trace",
    "exploration_page",
    "exploration_table",
    "interactive",
    "performance_table",
    "roofline",
    "save_figure",
    "spacetime",
    "statistics_data",
    "statistics_table",
    "write_text",
]

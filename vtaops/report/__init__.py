"""Reports for people: statistics."""

from vtaops.report.statistics import statistics_data, statistics_table

__all__ = ["statistics_data", "statistics_table"]

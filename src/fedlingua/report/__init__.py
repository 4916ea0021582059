"""The report of a run: one HTML page and the before/after table, made from the files of the run folder alone."""

from fedlingua.report.keep import keep_run
from fedlingua.report.page import write_report
from fedlingua.report.tables import score_markdown, score_table

__all__ = ["keep_run", "score_markdown", "score_table", "write_report"]

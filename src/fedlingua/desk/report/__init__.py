"""The reports of runs and suites: an HTML page each, and the before/after table of scores, made from their files alone."""

from fedlingua.desk.report.keep import keep_run
from fedlingua.desk.report.run_page import write_report
from fedlingua.desk.report.suite_page import write_suite_report
from fedlingua.desk.report.tables import score_markdown, score_table

__all__ = ["keep_run", "score_markdown", "score_table", "write_report", "write_suite_report"]

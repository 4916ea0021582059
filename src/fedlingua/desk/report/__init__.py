"""Reports of runs and suites, made only from their files: an HTML page each, and the table of scores before and after training."""

from fedlingua.desk.report.keep import keep_run
from fedlingua.desk.report.run_page import write_report
from fedlingua.desk.report.suite_page import write_suite_report
from fedlingua.desk.report.tables import score_markdown, score_table

__all__ = ["keep_run", "score_markdown", "score_table", "write_report", "write_suite_report"]

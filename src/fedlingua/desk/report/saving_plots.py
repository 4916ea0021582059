"""A suite's quality against what was not sent, and against bytes, a point a row: MetaSend's figures 4 to 7."""

from html import escape

import plotly.graph_objects as go

from fedlingua.common import units
from fedlingua.desk.report.pareto_plot import Point, heights, pareto_plot
from fedlingua.desk.report.suite_result import BASE, Row, SuiteResult
from fedlingua.settings.methods import CENTRALIZED, SILO


def saving_points(result: SuiteResult) -> list[Point]:
    """x: % of an update's numbers that were not sent; rows that exchange whole updates lie at 0. Empty where no row selects."""
    if all(row.number_saving is None for row in result.rows):
        return []
    shares = [(row, _not_sent(row)) for row in result.rows if row.name != BASE]
    return [_point(row, 100 * share, row.macro) for row, share in shares if share is not None and row.macro is not None]


def uplink_points(result: SuiteResult) -> tuple[list[Point], str]:
    """x: bytes of a site and round, in the unit that is told with them; of the rows that exchange, and there are two of these or none.

    Not of those that have the text of several sites in one place: what that takes is nowhere counted.
    """
    rows = [row for row in result.rows if row.name != BASE and not row.name.startswith((CENTRALIZED, SILO))]
    known = [(row, row.uplink_bytes) for row in rows if row.uplink_bytes and row.macro is not None]
    known = known if len(known) > 1 else []
    size, unit = units.byte_unit(max((uplink for _, uplink in known), default=0.0))
    return [_point(row, uplink / size, row.macro) for row, uplink in known if row.macro is not None], unit


def saving_plot(result: SuiteResult) -> go.Figure:
    """Macro score against the share of numbers not sent: what is sent less lies to the right."""
    return pareto_plot(saving_points(result), result.metric, True, "numbers of an update not sent, %", result.base_macro)


def uplink_plot(result: SuiteResult) -> go.Figure:
    """Macro score against bytes: what is sent less lies to the left."""
    points, unit = uplink_points(result)
    return pareto_plot(points, result.metric, False, f"uplink of a site and round, {unit}", result.base_macro)


def base_in_view(result: SuiteResult) -> bool:
    """Whether the base's line is drawn: not where the rows would be left less than half of the height."""
    return result.base_macro is not None and heights(saving_points(result) or uplink_points(result)[0], result.base_macro)[2]


def _not_sent(row: Row) -> float | None:
    """Share of the numbers, 0-1: the table's, and 0 of a row that exchanges and does not select."""
    return 0.0 if row.number_saving is None and row.uplink_bytes else row.number_saving


def _point(row: Row, x: float, score: float) -> Point:
    return Point(row.name, x, score, row.macro_sd or 0.0, _told(row, score))


def _told(row: Row, score: float) -> str:
    told = f"{escape(row.name)}<br>{units.score(score)} ± {units.score(row.macro_sd or 0.0)}"
    if row.number_saving is not None:
        told += f"<br>not sent: {units.share(row.tensor_saving)} of tensors, {units.share(row.number_saving)} of numbers"
    return told if row.uplink_bytes is None else f"{told}<br>uplink {units.data(row.uplink_bytes)}"

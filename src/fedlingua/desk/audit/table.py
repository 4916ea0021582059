"""The table of an audit: a row for each attack and update, a column for each protection."""

from collections.abc import Sequence

from fedlingua.desk.audit.leak import Figure

WHAT = {
    "membership": "tell a sentence of the update from an unseen one",
    "words": "name the words of the text",
    "tokens by subspace": "name the source tokens of the batch",
    "sentences by subspace": "tell a sentence of the batch from an unseen one, by subspace",
    "canaries": "rank a planted sentence among others",
}
"""Attack -> what a server that succeeds can do, in words for people."""


def lines_of(figures: Sequence[Figure]) -> dict[str, list[list[str]]]:
    """Return a mapping of what a server can do, in words, to a line for each update and protection, as a terminal shows it."""
    lines: dict[str, list[list[str]]] = {}
    attacks, updates = list(WHAT), list(dict.fromkeys(each.update for each in figures))
    for each in sorted(figures, key=lambda figure: (attacks.index(figure.attack), updates.index(figure.update))):
        line = [each.update, each.protection, each.measure, _cell(each), f"{each.chance:.2f}"]
        lines.setdefault(WHAT[each.attack], []).append(line)
    return lines


def table_of(figures: Sequence[Figure]) -> tuple[list[str], list[list[str]]]:
    """Return the headers and rows; a cell is a value with its interval, and what theory allows at most."""
    protections = list(dict.fromkeys(each.protection for each in figures))
    by_row: dict[tuple[str, str, str], dict[str, Figure]] = {}
    for each in figures:
        by_row.setdefault((each.attack, each.update, each.measure), {})[each.protection] = each
    rows = [
        [
            *(WHAT[attack], update, measure),
            *(_cell(by_protection.get(protection)) for protection in protections),
            f"{next(iter(by_protection.values())).chance:.2f}",
        ]
        for (attack, update, measure), by_protection in by_row.items()
    ]
    return ["what a server can do", "update", "figure", *protections, "chance"], rows


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return "–"
    words = f"{figure.value:.2f}"
    if figure.low is not None and figure.high is not None:
        words += f" [{figure.low:.2f}, {figure.high:.2f}]"
    if "first" in figure.detail:
        words += f", first {figure.detail['first']:.0f} of {figure.detail['trials']:.0f}"
    return words if figure.most is None else f"{words}, at most {figure.most:.2f}"

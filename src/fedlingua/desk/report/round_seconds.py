"""The seconds of a round, by phase and by part of the work at the sites and at the server."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from fedlingua.desk.report.read import Round

Seconds = Mapping[str, float]
"""Part of a round, a name in PHASES or META -> its seconds."""

PHASES = ("train", "select", "send", "aggregate", "meta", "evaluate", "round")
"""train, send, evaluate: From the server's first request to its last reply. select: At the slowest site, the comparison with the last
round and the choice of what to send. aggregate: At the server. meta: The sum of META. round: The whole round."""
META = ("theta", "direction", "batches", "slope", "step")
"""Parts of learning a threshold. theta, step: The network's output and step, at the server. batches, slope: The pass over the meta
batches and the slope from it, at the slowest site. direction: Only in older runs, in which the server computed one for the sites."""
READING = (
    "Wall time, mean over rounds. train, send, evaluate: from the first message out to the last reply; most rounds are "
    "evaluated within the next one's train; selecting (at the slowest site) is within train, or within train and send where a threshold is "
    "learned, the sites' part of meta within evaluate. aggregate: the server's fold."
)


def round_seconds(rounds: Sequence[Round]) -> dict[str, float]:
    """Return part -> mean seconds over all rounds with training; empty for older runs, whose phases were not timed.

    A round without a part counts as zero seconds of it, so that parts that follow each other add up to no more than the round.
    """
    by_round = [_seconds(each) for each in rounds if each.number > 0 and each.phase_s]
    parts = [part for part in (*PHASES, *META) if any(part in seconds for seconds in by_round)]
    return {part: fmean(seconds.get(part, 0.0) for seconds in by_round) for part in parts}


def _seconds(of_round: Round) -> dict[str, float]:
    seconds: dict[str, float | None] = {phase: of_round.phase_s.get(phase) for phase in ("train", "send", "evaluate")}
    seconds |= {part: of_round.server_s.get(part) for part in ("aggregate", "theta", "direction", "step")}
    seconds |= {
        "select": _longest(of_round, "select"),
        "batches": _longest(of_round, "meta batches"),
        "slope": _longest(of_round, "meta slope"),
    }
    meta = [seconds[part] or 0.0 for part in META]
    seconds |= {"round": of_round.seconds, "meta": sum(meta) if any(meta) else None}
    return {part: value for part, value in seconds.items() if value is not None}


def training_seconds(rounds: Sequence[Round]) -> float | None:
    """Return the training seconds of a round's slowest site, for which the round waits, as a mean over rounds; None if there are none."""
    longest = [seconds for each in rounds if (seconds := _longest(each, "train")) is not None]
    return fmean(longest) if longest else None


def _longest(of_round: Round, part: str) -> float | None:
    return max((site.seconds[part] for site in of_round.sites.values() if part in site.seconds), default=None)

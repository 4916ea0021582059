"""Who is here: ask every node once which sites it hosts, and refuse what does not fit the run."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedlingua import protocol
from fedlingua.errors import RunError
from fedlingua.languages import Direction, parse_direction
from fedlingua.runs import RunFolder
from strategies.replies import POLL_S, Failure, gather

_TOLD = {"directions", "read", "kept", "reasons", "dropped", "train", "dev", "test"}


@dataclass(frozen=True)
class Roll:
    """The sites of a run. expected: all names of the federation file; sites: those that are here, in the same order.

    nodes: site -> Flower node id; about: site -> what it told of its text.
    """

    expected: tuple[str, ...]
    sites: tuple[str, ...]
    nodes: Mapping[str, int]
    directions: Mapping[str, Sequence[Direction]]
    about: Mapping[str, Mapping[str, Any]]


def call_roll(grid: Grid, expected: Sequence[str], fingerprint: str, quorum: float, deadline_s: float, folder: RunFolder) -> Roll:
    """Ask all nodes, again and again those that have joined since, until every site is here or the deadline has passed.

    Raises:
        RunError: a site twice or with another backbone, or too few sites; with the names and what each node said.
    """
    nodes: dict[str, int] = {}
    about: dict[str, Mapping[str, Any]] = {}
    faults: list[Failure] = []
    asked: set[int] = set()
    ends = time.monotonic() + deadline_s
    folder.event("phase", phase="describe", round=0, rounds=0, sites=len(expected))
    # A node that said something wrong will not say better later, so only silence is waited for.
    while len(nodes) < len(expected) and not faults and time.monotonic() < ends:
        new = sorted(set(grid.get_node_ids()) - asked)
        asked.update(new)
        messages = {f"node {node}": _question(node) for node in new}
        replies, failures = gather(grid, messages, deadline_s, lambda name, reply: None)
        faults += failures
        for name, reply in replies.items():
            faults += _take(reply, name, expected, fingerprint, nodes, about)
        time.sleep(POLL_S)
    present = tuple(site for site in expected if site in nodes)
    for fault in faults:
        folder.event("failure", phase="describe", round=0, site=fault.site, reason=fault.reason)
    if len(present) < max(1, quorum * len(expected) - 1e-9):
        absent = [site for site in expected if site not in nodes]
        said = "; ".join(f"{fault.site}: {fault.reason}" for fault in faults)
        raise RunError(
            f"{len(present)} of {len(expected)} sites are here and quorum = {quorum:g}; missing: {', '.join(absent)}"
            + (
                f" ({said})"
                if said
                else f" (no node hosts them after {deadline_s:g} s; start the sites' SuperNodes, or raise deadline-s)"
            )
        )
    directions = {site: [parse_direction(text) for text in cast(list[str], about[site]["directions"])] for site in present}
    return Roll(tuple(expected), present, nodes, directions, about)


def sites_json(roll: Roll) -> dict[str, Any]:
    """What sites.json says of every site."""
    nodes = sorted(set(roll.nodes.values()))
    return {
        site: {
            "directions": [str(direction) for direction in roll.directions[site]],
            "node": nodes.index(roll.nodes[site]),
            **{split: roll.about[site][split] for split in ("train", "dev", "test")},
            "accounts": {
                str(direction): {
                    "read": roll.about[site]["read"],
                    "kept": roll.about[site]["kept"],
                    "dropped": dict(zip(roll.about[site]["reasons"], roll.about[site]["dropped"], strict=True)),
                }
                for direction in roll.directions[site]
            },
        }
        for site in roll.sites
    }


def _question(node: int) -> Message:
    return Message(RecordDict(), dst_node_id=node, message_type=protocol.DESCRIBE, group_id="0")


def _take(
    reply: Message,
    name: str,
    expected: Sequence[str],
    fingerprint: str,
    nodes: dict[str, int],
    about: dict[str, Mapping[str, Any]],
) -> list[Failure]:
    """Enter a node's sites into `nodes` and `about`; what does not fit comes back, named."""
    faults = []
    theirs = str(reply.content.config_records.get(protocol.NODE, ConfigRecord()).get("fingerprint"))
    for key, record in reply.content.config_records.items():
        site = key.removeprefix(protocol.SITE_PREFIX)
        if site == key:
            continue
        if site not in expected:
            faults.append(Failure(site, f"on {name}, but not in the federation file"))
        elif theirs != fingerprint:
            other = f"{theirs[:12]}; wanted {fingerprint[:12]}"
            faults.append(Failure(site, f"has another backbone, tokenizer or tensor set ({other})"))
        elif not set(record) >= _TOLD:
            faults.append(Failure(site, f"does not tell its {', '.join(sorted(_TOLD - set(record)))}"))
        elif site in nodes:
            raise RunError(f"site {site!r} is hosted by two nodes; a name belongs to one node, so rename one of them")
        else:
            nodes[site] = reply.metadata.src_node_id
            about[site] = dict(record)
    return faults

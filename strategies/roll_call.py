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
from strategies.replies import POLL_S, gather


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
    """Ask all nodes and wait for enough sites.

    Raises:
        RunError: a site twice or with another backbone, or too few sites; with the names and what each node said.
    """
    node_ids = _wait_for_a_node(grid, deadline_s)
    folder.event("phase", phase="describe", round=0, rounds=0, sites=len(expected))
    messages = {
        f"node {node_id}": Message(RecordDict(), dst_node_id=node_id, message_type=protocol.DESCRIBE, group_id="0")
        for node_id in node_ids
    }
    replies, failures = gather(grid, messages, deadline_s, lambda name, reply: None)
    faults = [f"{failure.site}: {failure.reason}" for failure in failures]
    nodes: dict[str, int] = {}
    about: dict[str, Mapping[str, Any]] = {}
    for name, reply in replies.items():
        hosted = {
            key.removeprefix(protocol.SITE_PREFIX): record
            for key, record in reply.content.config_records.items()
            if key.startswith(protocol.SITE_PREFIX)
        }
        theirs = str(reply.content.config_records.get(protocol.NODE, ConfigRecord()).get("fingerprint"))
        for site, record in hosted.items():
            if site not in expected:
                faults.append(f"site {site!r} on {name} is not in the federation file")
            elif theirs != fingerprint:
                faults.append(
                    f"site {site!r} has another backbone, tokenizer or tensor set ({theirs[:12]}; wanted {fingerprint[:12]})"
                )
            elif site in nodes:
                raise RunError(f"site {site!r} is hosted by two nodes; a name belongs to one node, so rename one of them")
            else:
                nodes[site] = reply.metadata.src_node_id
                about[site] = dict(record)
    present = tuple(site for site in expected if site in nodes)
    for fault in faults:
        folder.event("failure", phase="describe", round=0, site=fault.split(" ")[1].strip("':"), reason=fault)
    if len(present) < quorum * len(expected) - 1e-9:
        absent = [site for site in expected if site not in nodes]
        raise RunError(
            f"{len(present)} of {len(expected)} sites are here and quorum = {quorum:g}; missing: {', '.join(absent)}"
            + (f" ({'; '.join(faults)})" if faults else "")
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


def _wait_for_a_node(grid: Grid, deadline_s: float) -> list[int]:
    ends = time.monotonic() + deadline_s
    while time.monotonic() < ends:
        node_ids = sorted(grid.get_node_ids())
        if node_ids:
            return node_ids
        time.sleep(POLL_S)
    raise RunError(f"no node connected within {deadline_s:g} s; start the sites' SuperNodes, or raise deadline-s")

"""Registration: ask every node once which sites it hosts, refuse those that do not fit, and admit late and returning ones."""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedlingua.common.errors import ExchangeError, RunError
from fedlingua.common.languages import Direction
from fedlingua.consent.keys import same_key
from fedlingua.corpora.overlap import REASON
from fedlingua.corpora.sites import POOLED, Federation, Site
from fedlingua.corpora.split import SPLITS, Split
from fedlingua.exchange import protocol
from fedlingua.exchange.checks import MOST_LOSS
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import message_bytes
from fedlingua.exchange.replies import Failure, Kind
from fedlingua.exchange.traffic import Traffic
from fedlingua.runs.folder import RunFolder
from strategies.checks.reply import check_about
from strategies.rounds.replies import POLL_S, first_line, pull_one

MOST_BYTES = 1_000_000
"""Most bytes of a node's description of itself."""
LOADS_S = 3600.0
"""Seconds for which a question lives beyond its deadline, since nodes answer while the server still loads its backbone."""
MOST_TIMES = 1000
"""Most sentences of a site, as a multiple of the sites' median, unless the federation file says how many it has."""
LAST_WORDS_S = 10.0
"""Seconds that nodes already asked may still take to answer with an error, once all sites are registered or too few can be."""

PATIENCE_S = 5.0
"""Seconds after which the run says for which sites it waits."""
MOST_NAMED = 5
"""Most of them that are named."""


@dataclass
class Registry:
    """The sites of a federation, and the nodes that answer for those registered so far.

    code, fingerprint: Hashes that a node has to report; the latter may be set once nodes are asked. pooled: Whether one pseudo-site
    represents all sites. vocabulary: Number of its tokens. nodes: Site -> Flower node id. about: Site -> its description of its text.
    """

    federation: Federation
    code: str
    fingerprint: str = ""
    pooled: bool = False
    vocabulary: int = 2**31
    nodes: dict[str, int] = field(default_factory=dict)
    about: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    complete: bool = False
    """Whether all sites that will be here at the start are registered, so that their sizes can be compared."""
    _left_out: dict[str, Mapping[Split, int]] = field(default_factory=dict)
    """Site -> pairs of its dev and test text that the run leaves out because another site trains on them."""
    _asked: dict[int, str] = field(default_factory=dict)
    """Node id -> the pending request to it; "" once it is answered."""

    @cached_property
    def members(self) -> dict[str, tuple[Site, ...]]:
        """Registered name -> the sites that it represents in federation file and scores: itself, or all pooled sites."""
        sites = self.federation.sites
        return {POOLED: sites} if self.pooled else {site.name: (site,) for site in sites}

    @property
    def most_loss(self) -> float:
        """The highest possible mean loss in nats a token."""
        return MOST_LOSS * math.log(self.vocabulary)

    @property
    def expected(self) -> list[str]:
        """All names that should register, in the order of the federation file."""
        return list(self.members)

    @property
    def sites(self) -> list[str]:
        """The registered names, in the same order."""
        return [site for site in self.expected if site in self.nodes]

    @cached_property
    def directions(self) -> dict[str, list[Direction]]:
        """Registered name -> the directions that it trains on: its sites', or all if text is mixed."""
        mixed, everybody = self.federation.rules.split.mixed, self.federation.sites
        return {name: [site.direction for site in (everybody if mixed else sites)] for name, sites in self.members.items()}

    def request(self, message_type: str, task: Task, deadline_s: float) -> Message:
        """Make a request to a registered site. deadline_s: seconds until its reply is due."""
        content = RecordDict({protocol.TASK: ConfigRecord(task.request()), protocol.RULES: ConfigRecord(self._rules)})
        # A request that no node fetches expires; but only after the deadline, so that a late site can be told from a lost one.
        lives = 60.0 + 1.5 * deadline_s
        to = self.nodes[task.site]
        return Message(content, dst_node_id=to, message_type=message_type, group_id=str(task.round), ttl=lives)

    def leave_out(self, counts: Mapping[str, Mapping[Split, int]]) -> None:
        """Subtract pairs from the sites' dev and test text, also when a site registers again. counts: site -> split -> pairs."""
        self._left_out = dict(counts)
        self.about = {site: _without(record, counts.get(site, {})) for site, record in self.about.items()}

    def ask(self, grid: Grid, deadline_s: float) -> None:
        """Ask the nodes that are new or came back to describe themselves, without waiting."""
        connected = set(grid.get_node_ids())
        if gone := set(self._asked) - connected:
            # A node may return with other text or another backbone, so it is asked again; so are those of which no site is taken: one may
            # have come back under a new id, and been refused while the old one still seemed to be there.
            idle = {node for node, number in self._asked.items() if not number} - set(self.nodes.values())
            self._asked = {node: number for node, number in self._asked.items() if node not in gone | idle}
        if new := sorted(connected - set(self._asked)):
            about: dict[str, Any] = {"message_type": protocol.DESCRIBE, "group_id": "0", "ttl": deadline_s + LOADS_S}
            rules = ConfigRecord(self._rules)
            requests = [Message(RecordDict({protocol.RULES: rules}), dst_node_id=node, **about) for node in new]
            ids = grid.push_messages(requests)
            self._asked |= {node: str(number) for node, number in zip(new, ids, strict=True)}

    def refresh(self, grid: Grid, deadline_s: float) -> tuple[set[str], list[Failure]]:
        """Ask new nodes and read the answers so far, without waiting; return (sites whose node is connected, refusals)."""
        self.ask(grid, deadline_s)
        failures: list[Failure] = []
        for node, number in sorted(self._asked.items()):
            for reply in pull_one(grid, number, MOST_BYTES) if number else []:
                self._asked[node] = ""
                failures += self._enter(reply, node, grid)
        if self.complete or len(self.sites) == len(self.expected):
            failures += self.drop_giants()
        # A node that was gone answers for its sites again once it has described them anew.
        return {site for site, node in self.nodes.items() if self._asked.get(node) == ""}, failures

    def drop_giants(self) -> list[Failure]:
        """Of three or more sites, remove those with over `MOST_TIMES` the median of sentences, unless the federation file bounds them."""
        known = self.federation.rules.sizes, self.federation.rules.limits
        giants = dict[str, Failure]()
        for split in SPLITS:
            sizes = sorted(int(self.about[site][split]) for site in self.sites)
            most = MOST_TIMES * max(1, sizes[len(sizes) // 2]) if len(sizes) > 2 else math.inf
            for site in self.sites:
                given = any(getattr(one, split) for one in (*known, *(member.sizes for member in self.members[site])))
                if int(self.about[site][split]) > most and not given:
                    why = f"says {self.about[site][split]} sentences of {split}, over {most}, which is {MOST_TIMES} times the sites' median"
                    giants[site] = Failure(site, f"{why}; where it is true, give max-{split} in the federation file's [split]")
        for site in giants:
            del self.nodes[site]
        return [*giants.values()]

    @property
    def waits_for_answers(self) -> bool:
        return any(self._asked.values())

    @cached_property
    def _rules(self) -> dict[str, Any]:
        return self.federation.rules.flat()

    def _enter(self, reply: Message | ExchangeError, node: int, grid: Grid) -> list[Failure]:
        """Register a node's sites; return those that do not fit."""
        name = f"node {node}"
        who = self._speaker(node, grid) or name
        for site in [site for site, other in self.nodes.items() if other == node]:
            del self.nodes[site]
        if isinstance(reply, ExchangeError):
            return [Failure(who, str(reply))]
        if reply.has_error():
            return [Failure(who, first_line(reply.error.reason), "failed")]
        if message_bytes(reply) > MOST_BYTES:
            return [Failure(who, f"tells more than {MOST_BYTES} bytes of itself")]
        failures, strangers = [], []
        about_node = reply.content.config_records.get(protocol.NODE, ConfigRecord())
        for key, record in reply.content.config_records.items():
            site = key.removeprefix(protocol.SITE_PREFIX)
            if site == key:
                continue
            if site not in self.members:
                strangers.append(site)
                continue
            if fault := self._fault(site, node, about_node, record, grid):
                failures.append(Failure(site, f"{fault[1]} ({name})", fault[0]))
            else:
                self.nodes[site], self.about[site] = node, _without(record, self._left_out.get(site, {}))
                self.traffic.speakers.setdefault(node, site)
        if strangers:
            more = f", nor are {len(strangers) - 1} more that it names" if len(strangers) > 1 else ""
            failures.append(Failure(strangers[0], f"is not in the federation file{more} ({name})", "foreign"))
        return failures

    def _fault(
        self, site: str, node: int, about_node: Mapping[str, Any], record: Mapping[str, Any], grid: Grid
    ) -> tuple[Kind, str] | None:
        """Return why a node may not answer for a site, or None."""
        members = self.members[site]
        if any(one.public_key and not same_key(one.public_key, _key_of(node, grid)) for one in members):
            return "foreign", "speaks with another key than the one that the federation file has for this site"
        if site in self.nodes and self.nodes[site] != node and self.nodes[site] in set(grid.get_node_ids()):
            return "foreign", "is hosted by a second node; a name belongs to one node, so rename one of them"
        if about_node.get("fingerprint") != self.fingerprint:
            other = f"{str(about_node.get('fingerprint'))[:12]}; wanted {self.fingerprint[:12]}"
            return "refused", f"has another backbone, tokenizer or tensor set ({other})"
        if about_node.get("code") != self.code:
            return "refused", f"runs other code ({str(about_node.get('code'))[:12]}; wanted {self.code[:12]})"
        try:
            check_about(record, [str(direction) for direction in self.directions[site]])
        except ExchangeError as error:
            return "refused", str(error)
        sizes = [site.sizes.before(self.federation.rules.sizes) for site in members]
        for split in () if self.federation.rules.split.mixed else SPLITS:
            asked, most = sum(one.of(split) for one in sizes), self.federation.rules.limits.of(split) * len(members)
            if (all(one.of(split) for one in sizes) and record[split] != asked) or 0 < most < record[split]:
                return "refused", f"says {record[split]} sentences of {split}; the federation file has {asked or most}"
        for split, number in self._left_out.get(site, {}).items():
            if number and record[split] <= number:
                says = f"came back with {record[split]} pairs of {split}"
                return "refused", f"{says}, and {number} that others train on were left out before"
        return None

    def _speaker(self, node: int, grid: Grid) -> str:
        """Return the sites that a node answers for, by its earlier description or its key; "" if neither is known."""
        key = _key_of(node, grid)
        by_key = [site.name for site in self.federation.sites if key and site.public_key and same_key(site.public_key, key)]
        return ", ".join([site for site, other in self.nodes.items() if other == node] or by_key)


def _without(record: Mapping[str, Any], left_out: Mapping[Split, int]) -> dict[str, Any]:
    """Return a site's description of its text after pairs are left out. left_out: split -> their number."""
    about, count = dict(record), sum(left_out.values())
    if count:
        about |= {split: about[split] - number for split, number in left_out.items()}
        about["kept"] -= count
        about["reasons"], about["dropped"] = [*about["reasons"], REASON], [*about["dropped"], count]
    return about


def register_sites(grid: Grid, registry: Registry, quorum: float, deadline_s: float, folder: RunFolder) -> None:
    """Ask all nodes, including those that connect meanwhile, until every site is registered or the deadline has passed.

    Raises:
        RunError: Too few sites, or a site without a public key whose node is in doubt; the message names the sites and the errors.
    """
    faults: list[Failure] = []
    needed = max(1, math.ceil(quorum * len(registry.expected) - 1e-9))
    ends = time.monotonic() + deadline_s
    folder.event("phase", phase="describe", round=0, rounds=0, sites=len(registry.expected))
    named, began = ("", 0), time.monotonic()
    while time.monotonic() < ends:
        faults += _told(registry.refresh(grid, deadline_s)[1], folder)
        if time.monotonic() - began >= PATIENCE_S:
            named = _name_missing(registry, faults, named, folder)
        # A refused site will not answer better later, so only sites that have not answered are waited for.
        lost = {fault.site for fault in faults if fault.kind != "foreign"} - set(registry.sites)
        if len(registry.sites) + len(lost) >= len(registry.expected) or len(registry.expected) - len(lost) < needed:
            if not registry.waits_for_answers:
                break
            ends = min(ends, time.monotonic() + LAST_WORDS_S)
        time.sleep(POLL_S)
    registry.complete = True
    faults += _told(registry.drop_giants(), folder)
    keyless = {name for name, sites in registry.members.items() if not all(site.public_key for site in sites)}
    doubtful = [fault for fault in faults if fault.kind == "foreign" and fault.site in keyless]
    if len(registry.sites) >= needed and not doubtful:
        return
    absent = [site for site in registry.expected if site not in registry.nodes]
    said = "; ".join(f"{fault.site}: {fault.reason}" for fault in faults)
    silence = f"no node hosts them after {deadline_s:g} s; start the sites' SuperNodes, or raise deadline.join-s"
    raise RunError(
        f"{len(registry.sites)} of {len(registry.expected)} sites are here and quorum = {quorum:g}; "
        f"missing: {', '.join(absent) or 'none'} ({said or silence})"
    )


def _name_missing(registry: Registry, faults: Iterable[Failure], before: tuple[str, int], folder: RunFolder) -> tuple[str, int]:
    """Return the sites that are waited for and how many are here; an event, if this is no longer as `before`."""
    missing = [site for site in registry.expected if site not in {*registry.sites, *(fault.site for fault in faults)}]
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    names, here = ", ".join(missing[:MOST_NAMED]) + more, len(registry.sites)
    if (names, here) != before and (names or before[0]):
        folder.event("waiting", missing=names, here=here, sites=len(registry.expected))
    return names, here


def _told(faults: list[Failure], folder: RunFolder) -> list[Failure]:
    """Return the faults, after they are in the run's events."""
    for fault in faults:
        folder.event("failure", phase="describe", round=0, site=fault.site, kind=fault.kind, reason=fault.reason)
    return faults


def sites_json(registry: Registry) -> dict[str, Any]:
    """Return the content of sites.json: every site that has registered."""
    nodes, sites = sorted(set(registry.nodes.values())), dict[str, Any]()
    for site in registry.sites:
        about, directions = registry.about[site], [str(direction) for direction in registry.directions[site]]
        dropped = dict(zip(about["reasons"], about["dropped"], strict=True))
        account = {"read": about["read"], "kept": about["kept"], "dropped": dropped}
        if "failures" in about:
            account["failed_documents"] = dict(zip(about["failures"], about["failed_documents"], strict=True))
        sites[site] = {
            "directions": directions,
            "members": {one.name: str(one.direction) for one in registry.members[site]},
            "node": nodes.index(registry.nodes[site]),
            **{split: about[split] for split in SPLITS},
            "accounts": {directions[0] if len(directions) == 1 else "all": account},
        }
    return sites


def _key_of(node: int, grid: Grid) -> bytes:
    """Return the public key by which the SuperLink has authenticated a node; empty without node authentication."""
    return next((bytes(info.public_key) for info in grid.get_nodes() if info.node_id == node), b"")

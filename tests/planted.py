"""Bugs that a sweep has to find: each is planted by a test, in the library's own code, and gone when the test ends.

`python tests/planted.py` looks for each of them in the seeds 0 to 299 and prints in how many it is found, and by which
promise; with names, for these alone; with `--enough`, only until it is found in three; with `--minimise`, it makes
the first failures as small as can be.
"""

import __future__

import inspect
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import pytest

from samovar.protocols.channel import Envelope
from samovar.protocols.link.handshake import Binding
from samovar.protocols.link.lane import Inbound, Outbound
from samovar.protocols.local_sgd.catch_up import Wanted
from samovar.protocols.local_sgd.commit import Commit, Have, Verdicts
from samovar.protocols.local_sgd.lag import Lag
from samovar.protocols.local_sgd.learner import Learner
from samovar.protocols.local_sgd.local_sgd import Contribution, LocalSGD
from samovar.protocols.local_sgd.site_averaging import SiteRounds
from samovar.protocols.local_sgd.trial import Trial
from samovar.protocols.members import next_view, view_change
from samovar.protocols.members.acceptor import Acceptor
from samovar.protocols.members.admission import Admission
from samovar.protocols.members.departure import Departure
from samovar.protocols.members.edges import Edges
from samovar.protocols.members.membership import Membership
from samovar.protocols.members.occasion import Occasion
from samovar.protocols.members.quorum import Quorum
from samovar.protocols.members.roster import Roster
from samovar.protocols.members.view import View
from samovar.protocols.members.view_change import Change
from samovar.protocols.members.waiting import Waiting
from samovar.protocols.transfer import snapshot_transfer
from samovar.protocols.transfer.chunks import Key
from samovar.sims.scenarios.draw import draw
from samovar.sims.scenarios.text import scenario_text
from samovar.sims.sweeps.minimise import minimise
from samovar.sims.sweeps.verdict import Verdict, judge

SEEDS = range(300)
ENOUGH = 3
Plant = Callable[[pytest.MonkeyPatch], None]


def commits_without_a_quorum(patch: pytest.MonkeyPatch) -> None:
    """The first who has a result commits it for all."""

    def count(self: Verdicts, voter: str, have: Have) -> None:
        key = (have.generation, have.round)
        if self._membership.coordinator == self._channel.endpoint.id and self.on(key) is None:
            self._announce(Commit(*key, have.fingerprint))

    patch.setattr(Verdicts, "_count", count)


def counts_an_update_twice_after_a_retry(patch: pytest.MonkeyPatch) -> None:
    """What was brought to an attempt that came to nothing is brought to the next one as well."""
    make = Trial.make

    async def again(self: Any, key: Key, contribution: Contribution, *others: Any) -> Any:
        tried = self.__dict__.setdefault("tried", {})
        times = tried[key[1]] = tried.get(key[1], 0) + 1
        return await make(self, key, replace(contribution, weight=contribution.weight * times), *others)

    patch.setattr(Trial, "make", again)


def accepts_a_stale_generation(patch: pytest.MonkeyPatch) -> None:
    """A view is gone on to whichever generation it is of."""

    def on_install(self: Change, envelope: Envelope) -> None:
        if envelope.sender in self._roster.addresses:
            self._take(envelope.message.decree, envelope.sender)

    patch.setattr(Change, "_on_install", on_install)


PLANTED: list[Plant] = [
    commits_without_a_quorum,
    counts_an_update_twice_after_a_retry,
    accepts_a_stale_generation,
]

# ---- mutants: one line of the library is another


def mutant(owner: Any, name: str, old: str, new: str) -> Plant:
    """Of the function of that name, in a class or a module."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        function = inspect.getattr_static(owner, name)
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(old) == 1, f"{name} has {source.count(old)} times: {old}"
        code = compile(source.replace(old, new), name, "exec", flags=__future__.annotations.compiler_flag)
        made: dict[str, Any] = {}
        exec(code, inspect.unwrap(function).__globals__, made)
        patch.setattr(owner, name, made[name])

    return plant


MUTANTS: dict[str, Plant] = {
    "a proposer ignores what was adopted before": mutant(
        Change,
        "_try",
        "before = max(self._promises.values(), key=lambda promise: promise.adopted).decree",
        "before = None",
    ),
    "a lane hands on a duplicate": mutant(
        Inbound, "take", "seq in self.early:\n        return", "seq in self.early:\n        yield item\n        return"
    ),
    "an acceptor adopts under a lower ballot than promised": mutant(
        Acceptor, "adopt", "if ballot >= self.promised:", "if True:"
    ),
    "an acceptor's promise may be of a lower ballot": mutant(
        Acceptor, "promise", "self.promised = max(self.promised, ballot)", "self.promised = ballot"
    ),
    "half of a view is enough to change it": mutant(
        Quorum, "enough", "return half and self.fixed is None and", "return half or"
    ),
    "a view goes on without what is committed": mutant(
        Change, "_try", "before is None and not self.quorum.has_base(decree)", "False"
    ),
    "one vote too few commits": mutant(Verdicts, "_count", ">= view.majority()", ">= view.majority() - 1"),
    "votes count amid a change": mutant(Membership, "current", " and not self._change.promised", ""),
    "a result is told of amid a change": mutant(Trial, "make", "if not self._hopeful(key):", "if False:"),
    "who is silent is taken to have no result": mutant(
        next_view, "_base", "voted + unknown < view.majority()", "voted < view.majority()"
    ),
    "whoever has a result commits it with the view": mutant(
        LocalSGD, "_installed", " and self._versions.of(self._result.state) == base", ""
    ),
    "what is not acknowledged is forgotten": mutant(
        Outbound, "acknowledge", "self.in_flight[0].seq < received", "self.in_flight[0].seq <= received"
    ),
    "a lane hands on what comes too early": mutant(
        Inbound, "take", "if seq == self.next_seq and not self.early:", "if not self.early:"
    ),
    "what was meant for a former life is taken": mutant(
        Binding, "both", "incarnation == self.towards and towards == self.incarnation", "incarnation == self.towards"
    ),
    "a view goes on from the oldest state": mutant(next_view, "_base", "committed = max(", "committed = min("),
    "a learner has learned before it has the state": mutant(
        Learner, "_fetch", "there = own == base or base.round < own.round <= base.round + 1", "there = True"
    ),
    "whatever state a donor has is adopted": mutant(Lag, "catch_up", "exact=True", "exact=False"),
    "a donor gives a part of another round": mutant(
        snapshot_transfer.Donor,
        "_kept",
        "offer = self._offers.pop(version, None)",
        "offer = self._offers.pop(max([version, *self._offers]), None)",
    ),
}


# ---- mends that are taken back


def all_of(*plants: Plant) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        for one in plants:
            one(patch)

    return plant


LEARNERS_TOO = """if generation > view.generation and (self.votes or self._roster.learns):
        self._channel.post(sender, Behind(view.generation))
    elif generation < view.generation and self._latest is not None and (alone or sender in view.everybody):"""
MEMBERS_ONLY = LEARNERS_TOO.replace(" or self._roster.learns", "").replace("everybody", "ids")
UNLESS = "limit = asyncio.timeout(None if condition() else 0.0)"
LEARN_FIRST = """joining = learned if view.started else came
    known = [replace(m, bandwidth_Bps=roster.bandwidths_Bps.get(m.id, m.bandwidth_Bps)) for m in staying]
    members = _ranked(known + with_data_parts(joining, staying, founders, generation))
    if view.started:
        learning += [replace(one, since=generation) for one in came]
"""
AT_ONCE = """members = _ranked(staying + with_data_parts([*learned, *came], staying, founders, generation))
"""

TAKEN_BACK: dict[str, Plant] = {
    "a view is taken whichever life of a peer it is for": mutant(
        View, "holds", "known is not None and known.life == member.life", "known is not None"
    ),
    "newcomers hear of their view from its leader alone": all_of(
        mutant(Membership, "_take", "if not led:", "if False:"),
        mutant(Admission, "_on_join", "if there and (latest := self._latest()) is not None:", "if False:"),
    ),
    "a learner that is behind is not told": mutant(Acceptor, "of_now", LEARNERS_TOO, MEMBERS_ONLY),
    "newcomers are members at once": mutant(view_change, "next_decree", LEARN_FIRST, AT_ONCE),
    "who was given up while it caught up waits for ever": mutant(
        Waiting,
        "only_while",
        f"if self.failed is not None:\n        raise self.failed\n    {UNLESS}",
        "limit = asyncio.timeout(None)",
    ),
    "each view begins a fetch anew": all_of(
        mutant(Lag, "wants", "self.behind.version == version", "self.behind.version is version"),
        mutant(Lag, "catch_up", "kept=self._kept", "kept={}"),
    ),
    "a change goes on though its view is over": mutant(
        Change, "_ask", "return roster.view.generation == question.generation", "return True"
    ),
    "a former acceptor takes the seat of another life": mutant(Acceptor, "follow", "view.holds(self._me) and ", ""),
    "a learner that lost all members waits for them": mutant(Learner, "learn", "not membership.leaders", "False"),
    "a former acceptor stays in its view": mutant(
        Acceptor, "follow", "view.generation > self._view.generation", "False"
    ),
    "who has finished does not wait for whom it lets in": mutant(
        Departure, "finish", "(roster.waits or not leads())", "True"
    ),
    "who joins anew is forgotten with a view": mutant(
        Roster, "take", "for peer in self.newcomers if peer in view.everybody", "for peer in ()"
    ),
    "who has lost one coordinator gives up no other": mutant(
        Edges, "_lost_coordinator", "coordinator not in self._vouchers", "not self._vouchers"
    ),
    "before the start the death of the most senior member counts": mutant(
        Quorum,
        "enough",
        "if not view.started:\n        return half and view.by_seniority[0] in peers",
        "if not view.started and half and view.by_seniority[0] in peers:\n        return True",
    ),
    "a suspicion of another generation is ignored": mutant(
        Edges,
        "_on_suspicion",
        "self._of_now(envelope, told.generation)",
        "told.generation == self._roster.view.generation",
    ),
    "a promise that comes too late shows nobody there": mutant(
        Change,
        "_on_promise",
        "if promise.generation == self._roster.view.generation and not",
        "if self._awaited(envelope, promise.generation, promise.ballot) and not",
    ),
    "a silent former acceptor is waited for": mutant(Roster, "is_silent", "self._former.discard(peer)", "pass"),
    "a mate out of reach does not matter to a site": mutant(SiteRounds, "mean", "if {*self._mine.members}", "if set()"),
    "who vouched for a coordinator before it ended counts": mutant(
        Edges,
        "_lost_coordinator",
        "self._vouchers[coordinator].clear()  # the coordinator may have ended since it answered",
        "pass",
    ),
    "an earlier state than one's own is taken": mutant(Wanted, "check", "round < self.least or ", ""),
    "the time that it takes to gather counts": mutant(Occasion, "rest", "not self._roster.view.started", "False"),
    "who was sent elsewhere is turned away by those it came from": mutant(
        Admission, "_on_uninvited", "roster.failed is None and ", ""
    ),
    "who is overruled keeps it to itself": mutant(Admission, "ask", "self._overruled is not None", "False"),
}


def one_verdict(seed: int) -> Verdict:
    return judge(draw(seed))


def begin(name: str) -> None:
    """In a process that looks for that bug."""
    ALL[name](pytest.MonkeyPatch())


ALL: dict[str, Plant] = {plant.__name__: plant for plant in PLANTED} | MUTANTS | TAKEN_BACK


def search(name: str, *, enough: int, smallest: bool) -> None:
    began, found, judged = time.monotonic(), list[Verdict](), 0
    with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=begin, initargs=(name,)) as pool:
        for verdict in pool.map(one_verdict, SEEDS):
            judged += 1
            found += [verdict] if verdict.broken is not None else []
            if len(found) >= enough:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    seeds = [verdict.scenario.settings.seed for verdict in found]
    took_s = time.monotonic() - began
    print(f"{name}: {len(found)} of {judged} seeds, {seeds[:12]}; {took_s:.0f} s", flush=True)
    for promise, times in Counter(verdict.promise for verdict in found).most_common():
        print(f"    {times} times: {promise}", flush=True)
    with pytest.MonkeyPatch.context() as patch:
        ALL[name](patch)
        for verdict in found[:3] if smallest else ():
            small = minimise(verdict)
            peers, faults = small.scenario.peers, len(small.scenario.faults)
            print(f"{peers} peers, {faults} faults: {small.broken}\n{scenario_text(small.scenario)}", flush=True)


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if not name.startswith("--")]
    for bug in names or ALL:
        search(bug, enough=ENOUGH if "--enough" in sys.argv else len(SEEDS), smallest="--minimise" in sys.argv)

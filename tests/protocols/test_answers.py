"""Answers: who asks a peer that lives gets an answer, or hears why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from company import Company
from conformance import eventually, over
from simulated import PATIENCE_S, complaints, endpoint_in, no_complaints, now, simulate  # noqa: F401

from samovar.peers.settings.link_text import parse_link
from samovar.protocols import endpoint as endpoints
from samovar.protocols.channel import Channel, Envelope
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link import table
from samovar.protocols.link.link import PeerLost
from samovar.protocols.link_quality import reachability as probe
from samovar.protocols.link_quality.reachability import Prober, ask_reach
from samovar.protocols.members.hello import AskRun, RunIs
from samovar.protocols.members.invites import Admitted
from samovar.protocols.members.messages import MEMBERS, Join
from samovar.protocols.members.view import Version
from samovar.protocols.wire import frames as wire
from samovar.protocols.wire.frames import Lane, Unopened, message
from samovar.sims.world.network import Network


@message("test_answers", lane=Lane.DATA, payload_max=1 << 20)
@dataclass(frozen=True, slots=True)
class Query:
    ask: int


def between_two(visit: Callable[[Endpoint, Endpoint], Awaitable[Any]]) -> None:
    async def main() -> None:
        network = Network(parse_link("10mbit,5ms"), 1)
        a, b = endpoint_in(network, "a"), endpoint_in(network, "b")
        for one, other in ((a, "b"), (b, "a")):
            await one.open()
            one.dial(other, f"sim://{other}")
        try:
            await visit(a, b)
        finally:
            a.abort()
            b.abort()

    simulate(main())


@pytest.mark.parametrize("way", ["dismissed", "made room for"])
def test_an_asker_hears_at_once_that_its_link_has_ended(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_LINKS_MAX", 1)

    async def visit(a: Endpoint, b: Endpoint) -> None:
        asked: list[Envelope] = []
        over(b).on(AskRun, asked.append)
        asking = asyncio.create_task(over(a).ask("b", AskRun, answers=(RunIs,)))
        await eventually(lambda: bool(asked))
        await a.drain()
        began_s = now()
        if way == "dismissed":
            a.dismiss("b")
        else:
            a.links.call("c")
        with pytest.raises(PeerLost, match="let in no more" if way == "dismissed" else "too many others"):
            await asking
        assert now() == began_s

    between_two(visit)


def test_an_asker_hears_of_a_handler_that_fails() -> None:
    def fail(envelope: Envelope) -> None:
        raise OSError(24, "Too many open files")

    async def visit(a: Endpoint, b: Endpoint) -> None:
        over(b).on(AskRun, fail)
        with pytest.raises(PeerLost, match=r"it cannot answer: OSError: \[Errno 24\] Too many open files"):
            await over(a).ask("b", AskRun, answers=(RunIs,))
        assert a.is_lost("b") is None

    between_two(visit)
    assert complaints == [
        "the AskRun of peer a could not be dealt with: OSError(24, 'Too many open files')",
    ]
    complaints.clear()


def test_an_asker_waits_for_a_missing_answer_no_longer_than_wished() -> None:
    async def visit(a: Endpoint, b: Endpoint) -> None:
        asked = list[Envelope]()
        over(b).on(AskRun, asked.append)
        with pytest.raises(PeerLost, match="it is there but has not answered for 60 s"):
            await over(a).ask("b", AskRun, answers=(RunIs,), within_s=60.0)
        assert now() == pytest.approx(60.0, abs=1.0)
        over(b).post("a", RunIs(asked[0].message.ask, "too late", "{}"))
        later = asyncio.create_task(over(a).ask("b", AskRun, answers=(RunIs,), within_s=60.0))
        while len(asked) < 2:  # noqa: ASYNC110  # the world is watched from outside
            await asyncio.sleep(0.01)
        over(b).post("a", RunIs(asked[1].message.ask, "in time", "{}"))
        assert (await later).message.run == "in time"

    between_two(visit)


def unopened(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on whoever gets a Query does not know its family."""
    read = wire.decode

    def decode(header: wire.Buffer, payload_bytes: int) -> wire.Frame:
        frame = read(header, payload_bytes)
        return frame._replace(message=Unopened(frame.lane)) if isinstance(frame.message, Query) else frame

    monkeypatch.setattr(endpoints, "decode", decode)


def test_an_asker_hears_that_the_peer_does_not_know_the_family_of_its_question(monkeypatch: pytest.MonkeyPatch) -> None:
    unopened(monkeypatch)

    async def visit(a: Endpoint, b: Endpoint) -> None:
        elsewhere, asked = Channel(a, "elsewhere"), list[Envelope]()
        over(b).on(AskRun, asked.append)
        other = asyncio.create_task(over(a).ask("b", AskRun, answers=(RunIs,)))
        for _ in range(2):
            with pytest.raises(PeerLost, match="it cannot answer: it takes no part in the conversation"):
                await asyncio.wait_for(elsewhere.ask("b", Query, answers=(RunIs,)), PATIENCE_S)
        assert not other.done(), "a question on another channel"
        over(b).post("a", RunIs(asked[0].message.ask, "run", "{}"))
        assert (await other).message.run == "run"

    between_two(visit)


def test_messages_of_unknown_families_on_made_up_channels_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    unopened(monkeypatch)

    async def visit(a: Endpoint, b: Endpoint) -> None:
        for number in range(500):
            await Channel(a, f"made up {number}").send("b", Query(number), b"x" * 1000)
        await a.drain()
        await b.drain()
        assert not b.reception._unclaimed
        assert b.held_bytes == 0
        assert {*b.links.outbox.bytes_sent_by} | {*b.reception.bytes_received_by} == {""}

    between_two(visit)


def test_refused_questions_on_made_up_channels_leave_no_names_behind() -> None:
    """A question that gives its place up is refused, and its sender has made its channel up."""

    async def visit(a: Endpoint, b: Endpoint) -> None:
        for number in range(300):
            b.reception._keep(
                (f"made up {number}", AskRun), Envelope("a", AskRun(1 + number), b"", 100, f"made up {number}")
            )
            b.reception._forget(lambda envelope: True, "there is no room")
        await b.drain()
        assert {*b.links.outbox.bytes_sent_by} == {""}

    between_two(visit)


def test_a_prober_with_too_many_askers_says_that_it_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def visit(a: Endpoint, b: Endpoint) -> None:
        tried = asyncio.Event()

        async def slowly(address: str) -> str:
            await tried.wait()
            return ""

        monkeypatch.setattr(probe, "_try_to_connect", slowly)
        Prober(b, lambda: ())
        asks = [asyncio.create_task(ask_reach(a, "b", ["tcp://192.0.2.1:1"])) for _ in range(17)]
        with pytest.raises(PeerLost, match="busy with 16 others who ask the same; ask again"):
            await asks.pop()
        tried.set()
        assert [reached.problems for reached in await asyncio.gather(*asks)] == [("",)] * 16

    between_two(visit)


def test_hosts_that_others_name_are_tried_seldom_and_their_own_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks, and by whatever key: an invite is good for many."""
    tried = list[str]()

    async def try_to_connect(address: str) -> str:
        tried.append(address)
        return ""

    async def visit(a: Endpoint, b: Endpoint) -> None:
        monkeypatch.setattr(probe, "_try_to_connect", try_to_connect)
        monkeypatch.setattr(probe, "_ELSEWHERE_S", 100.0)
        monkeypatch.setattr(b, "whence", lambda peer: "198.51.100.7")
        Prober(b, lambda: ())
        for host in range(100):
            (told,) = (await ask_reach(a, "b", [f"tcp://10.0.0.{host}:22"])).problems
            assert told.startswith("not tried: it is another host than you call from") == (host >= 32)
        own = ["tcp://198.51.100.7:4000", "tcp://[::ffff:198.51.100.7]:4000"]
        assert (await ask_reach(a, "b", own)).problems == ("", "")
        assert len(tried) == 34
        await asyncio.sleep(100)
        assert (await ask_reach(a, "b", ["tcp://10.0.0.1:22"])).problems == ("",)

    between_two(visit)


def test_addresses_of_other_hosts_that_newcomers_name_are_called_seldom() -> None:
    """And a newcomer that is not called gets in all the same: it has called itself."""
    called = set[str]()

    async def main() -> None:
        company = Company(3, rounds=10**6)
        await company.gathered(1)
        contact = company[1].endpoint
        usual = contact.dial

        def dial(peer: str, address: str) -> None:
            called.add(address)
            usual(peer, address)

        contact.dial = dial  # type: ignore[method-assign]
        contact.whence = lambda peer: "198.51.100.7"  # type: ignore[method-assign]
        hostile = endpoint_in(company.network, "p6", seed=1)
        await hostile.open()
        for other in ("p1", "p6"):
            (hostile if other == "p1" else contact).admit(other)
        hostile.dial("p1", contact.address)
        me = replace(company[0].membership.me, id="p6", life=5)
        terms = company[0].membership.terms
        for host in range(100):
            member = replace(me, address=f"tcp://10.0.0.{host}:22")
            over(hostile, MEMBERS).post("p1", Join(host, "test", member, terms.layout, "", Version(0, 0), False))
            own = replace(me, address=f"tcp://198.51.100.7:{4000 + host}")
            over(hostile, MEMBERS).post("p1", Join(host, "test", own, terms.layout, "", Version(0, 0), False))
        await hostile.drain()
        await asyncio.sleep(1.0)
        assert sorted(address for address in called if "10.0.0." in address) == sorted(
            f"tcp://10.0.0.{host}:22" for host in range(32)
        )
        assert len([address for address in called if "198.51.100.7" in address]) == 100
        hostile.abort()
        late = company.add(3, "p1")
        await company.until(lambda: "p3" in company[0].membership.view.ids)
        assert late.error is None
        await company.over()

    simulate(main())


def test_a_newcomer_whose_contact_has_no_descriptor_left_hears_so_and_asks_again() -> None:
    async def main() -> None:
        company = Company(3, rounds=10**6)
        await company.gathered(1)
        usual = company[0].endpoint.dial

        def dial(peer: str, address: str) -> None:
            if peer == "p3":
                raise OSError(24, "Too many open files")
            usual(peer, address)

        company[0].endpoint.dial = dial  # type: ignore[method-assign]
        late = company.add(3, "p0")
        began = now()
        await company.until(lambda: bool(complaints))
        company[0].endpoint.dial = usual  # type: ignore[method-assign]
        await company.until(lambda: "p3" in company[1].membership.view.ids)
        assert now() - began < 3 * PATIENCE_S
        assert late.error is None
        for walker in company.walkers:
            walker.crash()
        await company.ended()

    simulate(main())
    assert "the Join of peer p3 could not be dealt with" in complaints[0]
    complaints.clear()


def test_an_answer_of_another_kind_is_refused_by_name_and_ends_the_wait() -> None:
    async def visit(a: Endpoint, b: Endpoint) -> None:
        over(b).on(AskRun, lambda envelope: over(b).post("a", Admitted(envelope.message.ask, "")))
        with pytest.raises(PeerLost, match="peer b is lost: it answered a question with Admitted"):
            await over(a).ask("b", AskRun, answers=(RunIs,))
        assert a.refused == {"b": "answered a question with Admitted"}
        assert a.is_lost("b") is None

    between_two(visit)


def test_who_does_not_wait_is_told_the_answer_as_it_arrives_or_why_there_is_none() -> None:
    async def visit(a: Endpoint, b: Endpoint) -> None:
        asked, told = list[Envelope](), list[Envelope | PeerLost]()
        over(b).on(AskRun, asked.append)
        questions = [over(a).asking("b", AskRun, answers=(RunIs,), told=told.append) for _ in range(3)]
        await eventually(lambda: len(asked) == 3)
        questions[1].cancel()
        for number in (0, 1):
            over(b).post("a", RunIs(asked[number].message.ask, f"run {number}", "{}"))
        await b.drain()
        assert [one.message.run for one in told if isinstance(one, Envelope)] == ["run 0"]
        a.gone("b", "it has ended")
        assert len(told) == 1, "not in the midst of what the loss brings about"
        await eventually(lambda: len(told) == 2)
        assert str(told[1]) == "peer b is lost: it has ended"
        assert not a.reception.asked
        with pytest.raises(PeerLost):
            over(a).asking("b", AskRun, answers=(RunIs,), told=told.append)
        assert not a.reception.asked

    between_two(visit)


def test_a_question_that_waits_for_credit_is_withdrawn_or_fails_with_its_link() -> None:
    async def visit(a: Endpoint, b: Endpoint) -> None:
        came, told = list[Envelope](), list[Envelope | PeerLost]()
        over(b).on(Query, came.append)
        ask = partial(over(a).asking, "b", Query, bytes(1 << 20), answers=(RunIs,), told=told.append)
        await over(a).send("b", Query(0))
        asked = [ask() for _ in range(60)]
        assert asked[-1].sending is not None
        asked[-1].cancel()
        a.gone("b", "it has ended")
        await eventually(lambda: len(told) == 59)
        assert all(isinstance(one, PeerLost) for one in told)

    between_two(visit)

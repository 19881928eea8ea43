"""What a launcher asks a peer: each answer goes to the question that it answers."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from samovar.peers.launch.spawned import Spawned


def asked_peer() -> tuple[Spawned, list[tuple[str, Any]]]:
    """A peer, and what it is told."""
    peer, told = Spawned(None), list[tuple[str, Any]]()  # type: ignore[arg-type]
    peer.control = SimpleNamespace(tell=lambda kind, content: told.append((kind, content)))  # type: ignore[assignment]
    return peer, told


async def test_a_late_answer_is_not_taken_for_that_of_the_next_question() -> None:
    peer, told = asked_peer()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await peer.ask("invite", {"do": "revoke"})
    second = asyncio.create_task(peer.ask("invite", {"do": "new"}))
    await asyncio.sleep(0)
    (_, (first_ask, _)), (_, (second_ask, _)) = told
    peer.answered(first_ask, {"was": "revoked"})
    await asyncio.sleep(0)
    assert not second.done()
    peer.answered(second_ask, {"is": "new"})
    assert await second == {"is": "new"}


async def test_two_questions_at_once_are_both_answered_in_any_order() -> None:
    peer, told = asked_peer()
    questions = [asyncio.create_task(peer.ask("invite", {"number": n})) for n in range(2)]
    await asyncio.sleep(0)
    for _, (ask, content) in reversed(told):
        peer.answered(ask, content)
    assert [await question for question in questions] == [{"number": 0}, {"number": 1}]


async def test_questions_to_a_peer_that_hangs_up_get_no_answer() -> None:
    peer, _ = asked_peer()
    questions = [asyncio.create_task(peer.ask("invite", {})) for _ in range(2)]
    await asyncio.sleep(0)
    peer.hung_up()
    assert [await question for question in questions] == [None, None]

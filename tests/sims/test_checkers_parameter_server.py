"""The promises of the parameter server find what breaks them in an event log."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from samovar.peers.run_settings.settings import Settings
from samovar.protocols.members.view import Decided
from samovar.protocols.parameter_server.events import Acknowledged, Doubted, Entered, Handled, Read, Shares, Took
from samovar.sims.checkers import parameter_server as promises
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.event_log import Entry, Gone

OWN: dict[str, Any] = {"protocol": "parameter-server", "device": "cpu", "servers": 2, "peers": 3, "steps": 12}
ONE = torch.ones(1)


def found(promise: Callable[..., Any], log: Sequence[Entry], **own: object) -> list[str]:
    settings = Settings(**{**OWN, **own})  # type: ignore[arg-type]
    return list(promise(Scenario.plain(settings), log))


def at(life: str, event: object) -> Entry:
    return Entry(0.0, life, event)


HISTORY = [
    at("3.0", Took(0, 1, 0, 0, ONE, {})),
    at("3.0", Entered(0, 1, 1, (("peer-0", 1),), ONE, {"peer-0": 1})),
    at("4.0", Entered(0, 1, 1, (), ONE, {"peer-0": 1})),
    at("3.0", Acknowledged(0, "peer-0", 1)),
]


def test_a_lost_push_is_found_unless_all_its_servers_are_gone() -> None:
    back, kept = Took(0, 2, 1, 0, ONE, {}), Took(0, 2, 1, 1, ONE, {})
    promise, crash = promises.an_acknowledged_push_is_never_lost, Gone(False, True, "", True)
    assert found(promise, [*HISTORY, at("4.0", kept)]) == []
    assert found(promise, [*HISTORY, at("4.0", back)]) == ["range 0 has lost push 1 of peer-0 in term 2 at 4.0"]
    assert found(promise, [*HISTORY, at("3.0", crash), at("4.0", back)]) == []


def test_a_push_is_lost_with_servers_outside_of_the_view_if_one_worker_alone_tells_of_it() -> None:
    """The servers wait for such a server, and then do not believe the worker, which may lie."""
    back, again = at("5.0", Took(0, 2, 0, 0, ONE, {})), at("5.0", Took(0, 3, 2, 0, ONE, {}))
    promise, lost = promises.an_acknowledged_push_is_never_lost, "range 0 has lost push 1 of peer-0 in term 2 at 5.0"

    def log(members: tuple[str, ...], told: tuple[str, ...]) -> list[Entry]:
        return [*HISTORY, at("0.0", Decided(2, members)), at("5.0", Doubted(0, 2, told)), back]

    assert found(promise, [*log(("peer-0", "peer-5"), ("peer-0",)), again]) == []
    assert found(promise, log(("peer-0", "peer-3", "peer-5"), ("peer-0",))) == [lost], "a server has it"
    assert found(promise, log(("peer-0", "peer-1", "peer-5"), ("peer-0", "peer-1"))) == [lost], "two tell of it"
    assert found(promise, [*HISTORY, back]) == [lost], "none tells of it"


def test_an_acknowledgement_of_an_unapplied_push_is_found() -> None:
    log = [*HISTORY, at("3.0", Acknowledged(0, "peer-1", 1))]
    promise = promises.an_acknowledged_push_is_never_lost
    assert found(promise, log) == ["3.0 acknowledged push 1 of peer-1 to range 0 without it"]
    assert found(promise, log, algorithm="backup:1") == [], "its step went on without it"


def test_a_range_of_a_resumed_run_has_the_pushes_that_its_first_clocks_tell() -> None:
    took = at("3.0", Took(0, 5, 4, 1, ONE, {"partition 0": 1}))
    again, new = (at("3.0", Acknowledged(0, "partition 0", seq)) for seq in (1, 2))
    promise = promises.an_acknowledged_push_is_never_lost
    assert found(promise, [took, again]) == []
    assert found(promise, [took, new]) == ["3.0 acknowledged push 2 of partition 0 to range 0 without it"]


def test_a_push_that_is_applied_twice_is_found() -> None:
    twice = at("3.0", Entered(0, 1, 2, (("peer-0", 1),), ONE, {"peer-0": 1}))
    assert found(promises.nothing_is_applied_twice, HISTORY) == []
    assert found(promises.nothing_is_applied_twice, [*HISTORY, twice]) == [
        "3.0 applied push 1 of peer-0 to range 0 2 times"
    ]


def test_clocks_beyond_the_bound_are_found() -> None:
    wide = at("3.0", Entered(0, 1, 1, (), ONE, {"peer-0": 5, "peer-1": 1}))
    early = at("3.0", Read(0, "peer-0", 5, {"peer-0": 5, "peer-1": 1}))
    promise = promises.the_clocks_of_workers_keep_the_bound
    assert len(found(promise, [wide, early], consistency="ssp:2")) == 2
    assert found(promise, [wide], consistency="ssp:3") == []
    assert found(promise, [wide, early], consistency="async") == []


def test_copies_that_differ_are_found() -> None:
    other = at("4.0", Entered(0, 1, 1, (), ONE * 2, {}))
    promise = promises.the_copies_of_a_range_agree
    assert found(promise, HISTORY) == []
    assert found(promise, [*HISTORY, other]) == ["4.0 holds another version 1 of range 0 in term 1"]


def test_a_message_of_a_key_that_is_in_no_view_is_found_where_it_is_handled() -> None:
    promise = promises.only_peers_of_the_run_push_and_read
    assert found(promise, [at("3.0", Handled("peer-0"))]) == []
    assert len(found(promise, [at("3.0", Handled("hostile-2"))])) == 1


def test_a_worker_in_another_memory_than_the_others_of_its_view_is_found() -> None:
    promise = promises.the_workers_of_a_view_share_one_memory
    log = [at("0.0", Shares(1, b"one")), at("1.0", Shares(1, b"one")), at("1.1", Shares(2, b"two"))]
    assert found(promise, log) == []
    assert len(found(promise, [*log, at("2.0", Shares(2, b"one"))])) == 1

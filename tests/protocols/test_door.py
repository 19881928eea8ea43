"""The door: how a peer from elsewhere gets ready to enter a run."""

import asyncio
import os
import socket

import pytest
from town import LOCAL, Town

from samovar.peers.launch import join_target as door
from samovar.peers.launch.join_target import JoinFailed, JoinTarget, cores_for_one
from samovar.peers.launch.keys import Invite
from samovar.peers.run_settings.settings import Settings
from samovar.protocols.channel import Channel
from samovar.protocols.link.link import BEGAN_ANEW, PeerLost
from samovar.protocols.members.hello import Greeter
from samovar.protocols.members.invitation import Invitation
from samovar.protocols.members.invites import Invites
from samovar.protocols.members.messages import MEMBERS
from samovar.protocols.transport import PeerId
from samovar.protocols.zeromq.transport import KeyPair

SETTINGS = Settings(listen=LOCAL, patience_s=0.4)


async def test_a_newcomer_knocks_again_where_a_listener_does_not_answer_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, real = asyncio.Queue[None](), door.ask_admission

    async def counted(*what: object) -> None:
        asked.put_nowait(None)
        await real(*what)

    monkeypatch.setattr(door, "ask_admission", counted)
    async with Town() as town:
        host = await town.endpoint()
        Greeter(host, run="run", settings="{}")
        invite = Invite.to(host.id)
        Invites(Channel(host, MEMBERS), Invitation(invite.guest.public), members=lambda: ())
        proxy, address = await town.proxy(host.address)
        proxy.flowing.clear()
        way = JoinTarget.of(address, invite.to_text(), None, SETTINGS)
        entering = asyncio.create_task(way.enter(SETTINGS))
        for _ in range(3):
            asking = asyncio.create_task(asked.get())
            await asyncio.wait([asking, entering], return_when=asyncio.FIRST_COMPLETED)
            assert not entering.done(), entering.exception()
        proxy.flowing.set()
        endpoint = await entering
        assert (await way.ask_run(endpoint)).run == "run"
        endpoint.abort()


@pytest.mark.parametrize(
    ("why", "again", "advice"),
    [
        (BEGAN_ANEW, True, "try again"),
        ("not heard of for 5 s: it is there, but does not answer at tcp://192.0.2.7:5", True, "try again"),
        ("not heard of for 5 s: no answer at tcp://192.0.2.7:5", False, "firewall"),
        ("not heard of for 5 s: it refused our key at tcp://192.0.2.7:5", False, "join line"),
    ],
)
async def test_only_a_contact_that_is_there_is_asked_again_and_the_advice_fits_the_cause(
    monkeypatch: pytest.MonkeyPatch, why: str, again: bool, advice: str
) -> None:
    tries: list[PeerId] = []

    async def lost(endpoint: object, contact: PeerId, key: PeerId) -> None:
        tries.append(contact)
        raise PeerLost(contact, why)

    monkeypatch.setattr(door, "ask_admission", lost)
    monkeypatch.setattr(door, "_TRY_FOR", 2)
    way = JoinTarget.of("tcp://192.0.2.7:5", Invite.to(KeyPair.new().public).to_text(), None, SETTINGS)
    with pytest.raises(JoinFailed, match=advice):
        await way.enter(SETTINGS)
    assert (len(tries) > 1) is again


def test_a_joiner_on_the_machine_of_the_run_takes_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all cores for itself it would have all peers wait, in each of their local steps."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert cores_for_one("tcp://127.0.0.1:5000", peers=3) == 2
    assert cores_for_one("tcp://127.0.0.1:5000", peers=30) == 1
    assert cores_for_one("tcp://192.0.2.7:5000", peers=3) == 8


def test_a_joiner_knows_its_own_machine_by_any_name_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"box.example": "127.0.0.9", "elsewhere.example": "192.0.2.7"}

    def looked_up(host: str, port: int, **how: object) -> list[tuple[object, ...]]:
        if host not in places:
            raise socket.gaierror("not known")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", (places[host], port))]

    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    assert cores_for_one("tcp://box.example:5000", peers=3) == 2
    assert cores_for_one("tcp://elsewhere.example:5000", peers=3) == 8
    assert cores_for_one("tcp://nowhere.example:5000", peers=3) == 8

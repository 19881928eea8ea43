"""Peers with thin links get fewer neighbours as soon as what they can send is measured, and nobody waits for them."""

from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.gossip.mixing import Mixed
from samovar.sims.scenarios.scenario import Group, Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

SIZE, ROUNDS = 20_000, 12
SLOW = range(9, 12)


def played(topology: str) -> tuple[float, dict[str, int]]:
    """The virtual time of a run, and the neighbours of each peer in its last exchange. Three of twelve peers can send a
    tenth of what the others can."""
    groups = (
        Group(peers=9, link=parse_link("20mbit,5ms"), step_s=0.01),
        Group(peers=3, link=parse_link("20mbit/2mbit,5ms"), step_s=0.01),
    )
    own = {"protocol": "gossip", "topology": topology, "period": "1"}
    settings = Settings(peers=12, steps=ROUNDS, device="cpu", patience_s=5.0, **own)
    world = World(toy_task(SIZE), Scenario(settings=settings, groups=groups))
    ended = run_virtual(world.run(within_s=600), seed=0)
    degrees: dict[str, int] = {}
    for entry in world.log.entries:
        if isinstance(entry.event, Mixed):
            degrees[entry.life.split(".")[0]] = len(entry.event.weights)
    return ended.virtual_s, degrees


def test_thin_links_get_fewer_neighbours_and_rounds_take_less_time() -> None:
    equal_s, equal = played("regular:4")
    suited_s, suited = played("capacity:4")
    assert set(equal.values()) == {4}
    assert [suited[str(peer)] for peer in SLOW] == [1, 1, 1]
    assert all(suited[str(peer)] >= 3 for peer in range(9))
    assert suited_s < 0.6 * equal_s

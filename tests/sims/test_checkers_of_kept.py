"""The promises of a sweep on what a worker of the parameter server keeps from turn to turn, in made-up logs."""

from torch import Tensor, tensor

from samovar.peers.run_settings.settings import Settings
from samovar.protocols.parameter_server.events import Entered, Sifted, Trains
from samovar.protocols.testpoints import Became
from samovar.sims.checkers.common import Check
from samovar.sims.checkers.parameter_server_kept import (
    a_worker_goes_on_from_its_own_model,
    what_filters_hold_back_is_sent_once,
)
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.event_log import Began, Entry, Resumed

SETTINGS = Settings(protocol="parameter_server", servers=1, peers=2, filters="significant:0.1", device="cpu")
SCENARIO = Scenario.plain(SETTINGS)
ONE, TWO, NOTHING = tensor([1.0, 0.0]), tensor([0.0, 2.0]), tensor([0.0, 0.0])


def found(check: Check, *events: tuple[str, object]) -> list[str]:
    return list(check(SCENARIO, [Entry(float(time), life, event) for time, (life, event) in enumerate(events)]))


def sifted(seq: int, owed: Tensor | None, *, sent: Tensor = ONE, left: Tensor | None = TWO) -> Sifted:
    pushed = sent + (NOTHING if left is None else left) - (NOTHING if owed is None else owed)
    return Sifted(seq, pushed, owed, sent, left)


def entered(seq: int) -> tuple[str, Entered]:
    return "0.0", Entered(0, 1, seq, (("peer-1", seq),), ONE, {})


def test_a_worker_with_a_model_of_its_own_must_go_on_from_it() -> None:
    became = ("1.0", Became(1, ONE))
    assert found(a_worker_goes_on_from_its_own_model, became, ("1.0", Trains(1, ONE.clone()))) == []
    assert len(found(a_worker_goes_on_from_its_own_model, became, ("1.0", Trains(1, TWO)))) == 1
    assert found(a_worker_goes_on_from_its_own_model, became, ("2.0", Trains(0, TWO))) == []


def test_what_filters_keep_must_be_in_the_next_push() -> None:
    check, first = what_filters_hold_back_is_sent_once, ("1.0", sifted(1, None))
    assert found(check, first, ("1.0", sifted(2, TWO))) == []
    assert len(found(check, first, ("1.0", sifted(2, ONE)))) == 1
    assert len(found(check, ("1.0", Sifted(1, ONE, None, ONE, TWO)))) == 1, "more than there was"
    assert len(found(check, ("1.0", Sifted(1, ONE + TWO, None, ONE, NOTHING)))) == 1, "a part is lost"


def test_a_restarted_worker_must_not_add_what_a_later_push_may_have_sent() -> None:
    check, began = what_filters_hold_back_is_sent_once, ("1.1", Began(version=1))
    pushes = (("1.0", sifted(1, None)), ("1.0", sifted(2, TWO, left=ONE)))
    assert found(check, *pushes, entered(2), began, ("1.1", sifted(3, ONE))) == []
    assert found(check, *pushes, entered(2), began, ("1.1", sifted(3, None))) == []
    assert found(check, *pushes, entered(1), began, ("1.1", sifted(2, TWO))) == []
    assert len(found(check, *pushes, entered(2), began, ("1.1", sifted(3, TWO)))) == 1
    assert found(check, ("world", Resumed()), began, ("1.1", sifted(3, TWO))) == []

"""The promises of a sweep on what is computed, in made-up logs: what is wrong by one number is found."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from samovar.aggregation.fednova import Speeds
from samovar.aggregation.server.momentum import Momentum
from samovar.protocols.gossip.messages import Published
from samovar.protocols.gossip.mixing import Mixed
from samovar.protocols.gossip.shares import BeganAnew, CameBack
from samovar.protocols.local_sgd.encoded import Encoded
from samovar.protocols.local_sgd.rounds import Committed, Computed, Contributed, WentOn
from samovar.protocols.members.view import Bound
from samovar.protocols.parameter_server.events import Entered, Took
from samovar.protocols.swim.beliefs import Belief, Believes
from samovar.protocols.swim.effects import Renewed
from samovar.protocols.testpoints import Became
from samovar.sims.checkers.common import (
    Check,
    a_peer_that_breaks_rules_is_hardly_read,
    an_acceptor_keeps_its_word,
    silence_is_counted_only_by_a_peer_that_listens,
)
from samovar.sims.checkers.gossip import a_share_that_came_back_counts_for_its_sender
from samovar.sims.checkers.local_sgd import (
    a_coded_mean_is_of_what_was_sent,
    a_peer_that_was_left_behind_goes_on_from_the_others_model,
    all_who_compute_an_attempt_compute_the_same,
    an_adaptive_period_falls,
    every_contribution_tells_a_speed,
    what_a_codec_leaves_out_is_sent_later,
)
from samovar.sims.checkers.parameter_server_updates import wrong_updates
from samovar.sims.checkers.swim import a_refutation_ends_the_suspicion
from samovar.sims.scenarios.scenario import Kind, Scenario
from samovar.sims.sweeps.draw import draw
from samovar.sims.world.event_log import Entry, Faulted, Fell, Silent


def told(check: Check, scenario: Scenario, *events: object, lives: Sequence[str] = ()) -> list[str]:
    """What a check finds in these events, one a second, of these processes; of the process 0.0 where none is named."""
    named = [*lives, *["0.0"] * (len(events) - len(lives))]
    log = [Entry(float(time_s), life, event) for time_s, (life, event) in enumerate(zip(named, events, strict=True))]
    return list(check(scenario, log))


def of(**own: object) -> Scenario:
    scenario = replace(draw(0, "allreduce"), buggify=False)
    plain = {
        "schedule": "ring",
        "codec": "none",
        "outer": "plain",
        "fragments": 1,
        "period": "1",
        "site_period": None,
        "pace": "equal",
    }
    return replace(scenario, settings=scenario.settings.changed(**{**plain, **own}))


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers)


# ---- local SGD


def encoded(
    round: int, owed: float, left: float, *, generation: int = 2, sent: float = 1.0, grown: tuple[str, ...] = ()
) -> Encoded:
    change = vector(sent + left - owed)
    return Encoded((generation, round), grown, change, vector(owed), vector(sent), vector(left))


def committed(round: int, value: float = 0.0, generation: int = 2) -> Committed:
    return Committed(round, vector(value), (generation, round), 1.0)


def test_what_a_codec_leaves_out_must_be_owed_and_sent_in_the_next_round() -> None:
    scenario = of(codec="top_k")

    def found(*events: object) -> list[str]:
        return told(what_a_codec_leaves_out_is_sent_later, scenario, *events)

    assert found(encoded(1, 0.0, 0.5), committed(1), encoded(2, 0.5, 0.25)) == []
    assert len(found(encoded(1, 0.0, 0.5), committed(1), encoded(2, 0.0, 0.25))) == 1, "it is forgotten"
    lost = Encoded((2, 1), (), vector(3.0), vector(0.0), vector(1.0), vector(0.0))
    assert len(found(lost)) == 1, "a part is neither sent nor owed"


def test_a_residual_must_be_dropped_when_the_members_have_changed() -> None:
    scenario = of(codec="top_k")
    before = (encoded(1, 0.0, 0.5), committed(1))
    assert told(what_a_codec_leaves_out_is_sent_later, scenario, *before, encoded(2, 0.0, 0.0, generation=3)) == []
    assert len(told(what_a_codec_leaves_out_is_sent_later, scenario, *before, encoded(2, 0.5, 0.0, generation=3))) == 1


def test_a_fragment_owes_nothing_after_the_model_has_grown_though_its_size_is_the_same() -> None:
    scenario = of(codec="top_k", fragments=2)
    before = (encoded(1, 0.0, 0.5), committed(1), encoded(2, 0.0, 0.5), committed(2))
    after = encoded(3, 0.0, 0.5, grown=("bias",))
    assert told(what_a_codec_leaves_out_is_sent_later, scenario, *before, after) == []
    assert len(told(what_a_codec_leaves_out_is_sent_later, scenario, *before, encoded(3, 0.0, 0.5))) == 1


def test_a_coded_mean_must_be_of_what_was_sent() -> None:
    before, scenario = committed(1, 5.0), of(codec="top_k")
    brought = [Contributed((2, 2), vector(9.0), weight, ("peer-0", "peer-1")) for weight in (1.0, 3.0)]
    sent = [encoded(2, 0.0, 0.0, sent=sent) for sent in (4.0, 8.0)]
    lives = ("0.0", "0.0", "0.0", "1.0", "1.0", "0.0")
    events = (before, brought[0], sent[0], brought[1], sent[1])
    assert told(a_coded_mean_is_of_what_was_sent, scenario, *events, committed(2, 12.0), lives=lives) == []
    assert len(told(a_coded_mean_is_of_what_was_sent, scenario, *events, committed(2, 11.0), lives=lives)) == 1


def test_members_that_compute_different_sums_are_found_unless_numbers_were_spoiled() -> None:
    scenario, sums = of(), (Computed((2, 1), 7), Computed((2, 1), 8))
    assert len(told(all_who_compute_an_attempt_compute_the_same, scenario, *sums)) == 1
    assert told(all_who_compute_an_attempt_compute_the_same, scenario, Fell(Kind.SPOIL, ("0.0",)), *sums) == []


def test_a_peer_that_was_left_behind_must_load_what_it_has_fetched() -> None:
    fetched, brought = Committed(4, vector(1.0), None, 0.0), Contributed((2, 5), vector(2.0), 1.0, ("peer-0",))

    def found(*events: object) -> list[str]:
        return told(a_peer_that_was_left_behind_goes_on_from_the_others_model, of(overlap=True), *events)

    assert found(fetched, WentOn(vector(1.0)), brought) == []
    assert len(found(fetched, WentOn(vector(3.0)), brought)) == 1
    assert len(found(fetched, brought)) == 1


@pytest.mark.parametrize(("periods", "wrong"), [((8, 8, 8, 8, 4), 0), ((8, 8, 8, 8, 8), 1), ((8, 4), 1)])
def test_an_adaptive_period_must_fall_after_each_block_and_not_before(periods: Sequence[int], wrong: int) -> None:
    rounds = [
        Committed(round, vector(1.0), (2, round), 1.0, elapsed_s=float(round), period=period)
        for round, period in enumerate(periods, 1)
    ]
    scenario = of(period="adaptive", period_initial=8, period_block_s=0.2)
    assert len(told(an_adaptive_period_falls, scenario, *rounds)) == wrong


def test_a_contribution_that_tells_no_speed_is_found_once_the_peers_have_agreed_on_one() -> None:
    silent = Contributed((2, 5), vector(1.0), 1.0, ("peer-0",), steps=4, agreed=Speeds(10.0, 0.1))
    check, scenario = every_contribution_tells_a_speed, of(pace="own", overlap=False)
    assert len(told(check, scenario, silent)) == 1
    assert told(check, scenario, replace(silent, speeds=Speeds(9.0, 0.2))) == []
    assert told(check, scenario, replace(silent, agreed=Speeds())) == []


# ---- gossip


def test_a_share_that_came_back_must_be_in_the_model_after_the_next_mix() -> None:
    scenario = draw(0, "gossip")
    scenario = replace(scenario, settings=scenario.settings.changed(algorithm="push_sum", codec="none"))
    share, mix = Published(1, 4, vector(3.0, 0.5)), Mixed(2, vector(0.0, 0.0), 1.0, {}, {}, vector(1.0, 0.5))

    def found(*events: object) -> list[str]:
        return told(a_share_that_came_back_counts_for_its_sender, scenario, *events)

    assert found(share, CameBack(1, "peer-1"), mix, Became(2, vector(4.0))) == []
    assert len(found(share, CameBack(1, "peer-1"), mix, Became(2, vector(2.0)))) == 1
    assert found(share, CameBack(1, "peer-1"), BeganAnew(), mix, Became(2, vector(2.0))) == []


def test_a_suspicion_that_goes_on_after_its_refutation_is_found() -> None:
    suspected, renewed = Believes("peer-1", 7, Belief.SUSPECT, 3, False), Renewed("peer-1", 7, 4)
    cleared = Believes("peer-1", 7, Belief.ALIVE, 4, False)
    scenario = draw(0, "gossip")
    assert told(a_refutation_ends_the_suspicion, scenario, suspected, cleared, renewed) == []
    assert len(told(a_refutation_ends_the_suspicion, scenario, suspected, renewed)) == 1
    assert told(a_refutation_ends_the_suspicion, scenario, suspected, Renewed("peer-1", 7, 3)) == []


# ---- the parameter server


def entered(version: int, value: float, pushed: float) -> Entered:
    return Entered(0, 2, version, (), vector(value), {}, None, vector(pushed))


def test_an_update_must_be_the_optimizers_with_all_that_was_pushed_before() -> None:
    took = Took(0, 2, 0, 0, vector(1.0), {})
    function = Momentum(rate=0.5, beta=0.5)  # of 1 and 1: 1, then 1.5

    def found(*events: object) -> list[str]:
        log = [Entry(0.0, "0.0", event) for event in (took, entered(1, 0.5, 1.0), *events)]
        return list(wrong_updates(function, log))

    assert found(entered(2, -0.25, 1.0)) == []
    assert len(found(entered(2, 0.0, 1.0))) == 1, "its momentum is forgotten"
    later = replace(took, term=3, base=2, version=1, values=vector(0.5))
    assert found(later, replace(entered(2, -0.25, 1.0), term=3)) == []
    assert len(found(later, replace(entered(2, 0.0, 1.0), term=3))) == 1, "its momentum is lost with the view"


# ---- any conversation


def test_an_acceptor_that_begins_below_its_word_after_a_restart_is_found() -> None:
    scenario, lives = of(), ("0.0", "0.1")
    before, check = Bound(5, 2, 40, 30), an_acceptor_keeps_its_word
    assert told(check, scenario, before, Bound(5, 2, 40, 30), lives=lives) == []
    assert len(told(check, scenario, before, Bound(5, 2, 0, 30), lives=lives)) == 1
    assert told(check, scenario, before, Bound(5, 3, 0, 0), lives=lives) == [], "of a later view"
    assert len(told(check, scenario, before, Bound(5, 2, 20, 30))) == 1, "it follows a lower ballot without a restart"
    assert told(check, scenario, before, Bound(5, 2, 40, 0)) == [], "it answers that it has not adopted another decree"


def test_a_peer_that_goes_on_reading_what_breaks_rules_is_found() -> None:
    scenario = of()
    log = [Entry(0.01 * number, "0.0", Faulted("hostile-1")) for number in range(16)]
    assert list(a_peer_that_breaks_rules_is_hardly_read(scenario, log)) == []
    log += [Entry(0.2 + 0.01 * number, "0.0", Faulted("hostile-1")) for number in range(4)]
    assert len(list(a_peer_that_breaks_rules_is_hardly_read(scenario, log))) > 0


def test_a_pause_of_ones_own_counted_as_the_silence_of_others_is_found() -> None:
    scenario = of()
    patience_s = scenario.settings.patience_s
    pause = Entry(1.0, "nemesis", Fell(Kind.PAUSE, ("0.0",), 1.0 + 3 * patience_s))

    def found(at_s: float) -> list[str]:
        log = [pause, Entry(at_s, "0.0", Silent("peer-1", 0.9))]
        return list(silence_is_counted_only_by_a_peer_that_listens(scenario, log))

    assert len(found(1.1 + 3 * patience_s)) == 1
    assert found(1.0 + 4 * patience_s) == []

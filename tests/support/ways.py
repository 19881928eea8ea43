"""The ways to train: each a name and its settings. What is promised of every way stands in `test_ways_to_train.py`.

A new way, be it a setting or a conversation, gets every promise by a row of `WAYS`. A promise that it cannot give is an
exception of the row, with its reason; the exception is tried too, and is told when it holds no more.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from live import ROOT
from loops import RECIPES

from samovar.peers.task.task import Task, load_task

PERIOD = 3
Test = Callable[..., None]
STEP_MS = 40.0


@dataclass(frozen=True, eq=False)
class Way:
    """`settings`: as `samovar train` takes them. `cannot`: the promises that it cannot give, with the reason.
    `by_chance`: those that it gives or not by measured times; they are not tried. `ended_by`: the setting that ends its
    runs, where its own one does so after another number of steps for other peers. `as_task`: the way by which a task
    does the same as this one in a script; empty: this one. `nightly`: other rows have the same settings in other
    company, so of its promises only those of `promised_always` are tried for each change, and these of a third of such
    rows; the others every night. `whole`: of the promises of another way only a sixth is tried for each change too, see
    `in_turn`; of this one all.
    `steps_ms`: the duration of a local step on each peer in turn. `all_at_once`: whether each exchange of three peers
    is of all three. `longest`: the most local steps before an exchange of two peers. `task_file`: a task of its own
    in `support`, which scripts train too if it is a recipe; empty: the usual one. `own`: the tensors that a
    conversation keeps for each peer alone."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    cannot: Mapping[str, str] = field(default_factory=dict)
    by_chance: Mapping[str, str] = field(default_factory=dict)
    ended_by: str = "steps"
    as_task: str = ""
    nightly: bool = False
    whole: bool = False
    steps_ms: tuple[float, ...] = (STEP_MS,)
    all_at_once: bool = True
    longest: int = 4
    task_file: str = ""
    own: frozenset[str] = frozenset({"residual"})

    @property
    def task(self) -> Path:
        """The file of the task with which it is tried."""
        usual = "judged.py" if self.ended_by.startswith("stop") else "union.py"
        return ROOT / "tests/support" / (self.task_file or f"tasks/{usual}")

    @property
    def recipe(self) -> str:
        """The name of the recipe of which its task is; empty: it is of none."""
        return self.task.stem if self.task.parent == RECIPES else ""

    def load(self) -> Task:
        """The task with which it is tried, called with its arguments."""
        return load_task(self.task, self.settings.get("arguments", ""))

    def some(self, choices: int, what: str) -> int:
        """A number below `choices`, another one for each way: which peer is killed, and when."""
        return zlib.crc32(f"{self.name} {what}".encode()) % choices

    def in_turn(self, promise: str, *, always: bool) -> bool:
        """Whether the promise is tried with this way for each change. Each promise is tried with other ways, so that
        together they try each promise, and each way, several times. `always`: it is of `promised_always`, which are
        about one run of the way, so all of them are tried or none."""
        if always:
            return not self.nightly or self.some(3, "its plain run") == 0
        return not self.nightly and (self.whole or self.some(6, promise) == 0)


RING = {"protocol": str(ROOT / "tests/support/ring_mixing.py"), "mix_every": PERIOD, "period": None}
GOSSIP = {"protocol": "gossip"}
CHOCO = {"protocol": "gossip", "algorithm": "choco:0.4", "topology": "ring", "codec": "top_k:0.2"}
SERVERS = {"protocol": "parameter-server", "servers": 2, "ranges": 4, "period": None, "evaluate_every": 1}
ASYNC = {"consistency": "async", "steps": 48}
FILTERED = {"algorithm": "downpour:1:2", "server_update": "add", "filters": "significant:0.01,int8"}
HOGWILD = {"protocol": "parameter-server", "algorithm": "hogwild:free:3", "period": None}
SITES = {"site": "east;east;west", "site_period": 1}
NESTEROV = {"outer": "nesterov:0.7:0.9"}
SAMPLES, EPOCHS = {"samples": 338, "steps": None}, {"epochs": 0.56, "steps": None}
STOP = {"stop": "accuracy >= 0.94", "evaluate_every": 2, "steps": None}
FP16 = "recipes/fp16.py"
THAWING = "tasks/thawing.py"
UNEVEN = (STEP_MS, STEP_MS, 3 * STEP_MS)

# Reasons

EQUAL = "every_peer_ends_with_the_same_model"
STOPPED = "a_run_that_is_stopped_at_any_time_is_resumed_and_takes_the_rest_of_its_steps"
RESUMED, LINK = "a_run_that_is_resumed_is_the_unbroken_one", "the_link_changes_no_bit"
AS_A_TASK, ALONE = "two_scripts_end_with_the_model_of_a_task", "a_loop_of_one_peer_trains_as_without_it"
BY_TIME = {LINK: "its local steps go by measured times", AS_A_TASK: "its local steps go by measured times"}
LONGER = {STOPPED: "it goes by the motion of a few parameters to periods longer than those of the others"}
BY_SPEED = {AS_A_TASK: "its local steps go by measured speeds"}
BY_ORDER = {
    LINK: "a model is mixed with what the others have at that time",
    AS_A_TASK: "a model is mixed with what the others have at that time",
}
ADDED = {LINK: "a server adds the pushes of three workers in the order in which they arrive"}
FIRST = ADDED | {AS_A_TASK: "the push that comes first counts alone"}
ARRIVED = {
    LINK: "a pull has the pushes that have arrived",
    AS_A_TASK: "a pull has the pushes that have arrived",
    RESUMED: "the checkpoints of servers and workers are of different moments, and so are the pulls after them",
}
BY_CHANGE = {ALONE: "a server adds the change of a local step to the model, and such a sum is rounded"}
OUTER = {ALONE: "an outer step moves the model of a single peer too"}
RESETS = {ALONE: "the optimizer's state is reset"}
BY_SIZE = {LINK: "on a slow link another schedule is faster for a vector of its size, which sums in another order"}
SCALED = {AS_A_TASK: "a step that the scaler leaves out counts as one of a task, and not as one of a script"}
TURNS = {ALONE: "a run ends with what was agreed, in which most fragments are of earlier rounds"}
BY_RANK = {AS_A_TASK: "what is rounded where goes by the order of the peers' keys"}
UNFORESEEN = {AS_A_TASK: "a script's end is not foreseen: its last steps are averaged at the site first, then by all"}
UNCORRECTED = {RESUMED: "corrections are not saved: the first round goes without"}
UNSAVED = {RESUMED: "the compression residuals of fragments are in no checkpoint"}
FORGETS = {RESUMED: "the models of the last round, with which the next is compared, are not saved"}
MIXES = {
    EQUAL: "models are mixed with two others', and stay each peer's own",
}
BY_START = {LINK: "a peer that comes last may find others some rounds ahead, who do not need it yet"}
BY_LINKS = dict.fromkeys((LINK, AS_A_TASK), "the first mixes are with the peers to which there is a link by then")
IN_ROWS = {AS_A_TASK: "the last mix of two peers may be of each alone, by the order of their keys"}
ESTIMATES = {
    RESUMED: "the estimates of a neighbour's model begin anew with the whole of it",
    AS_A_TASK: "a mix takes a part of the way to the mean of two models",
}
PAIRS = {RESUMED: "two peers average in the order in which they come to it"}
GRADIENTS = "gradients are averaged in a script's own loop, which simulations do not run"

SCRIPTS = (AS_A_TASK, ALONE, "a_failed_script_and_an_early_leaver_hold_no_peer_up")
IN_A_SCRIPT = dict.fromkeys(SCRIPTS, "a script decides its end itself")
IN_MEMORY = dict.fromkeys(SCRIPTS, "the parameters of a task's model are moved into shared memory")
INTERLEAVED = dict.fromkeys((LINK, RESUMED), "the order in which peers take their steps goes by measured times")

DROPPED = dict.fromkeys(
    (
        "every_peer_takes_all_its_steps_and_says_so_at_each_exchange",
        STOPPED,
    ),
    "local steps behind a round are dropped when it turns out to be the last",
)
IN_SIMULATION = (
    EQUAL,
    "every_peer_takes_all_its_steps_and_says_so_at_each_exchange",
    "records_account_for_every_second_and_byte",
    "each_way_is_another_run_than_the_plain_way",
    LINK,
    "the_command_line_simulates_each_way_and_writes_its_report",
    "a_killed_peer_never_stalls_the_others",
    "a_frozen_peer_is_given_up_and_takes_part_again_when_it_is_back",
    "a_restarted_peer_takes_part_again_from_its_checkpoint",
    "a_newcomer_catches_up_and_takes_part",
    "after_an_outage_all_go_on_from_checkpoints_of_different_rounds",
    RESUMED,
    STOPPED,
)
WAYS = (
    Way("plain", whole=True, cannot={"each_way_is_another_run_than_the_plain_way": "it is the plain one"}),
    Way("every step", {"period": "1", "steps": 12}, steps_ms=(100.0,), nightly=True),
    Way("adaptive", {"period": "adaptive", "period_initial": 4, "period_block_s": 0.15}, by_chance=BY_TIME),
    Way("auto", {"period": "auto"}, FORGETS, BY_TIME, nightly=True),
    Way("outer nesterov", NESTEROV, OUTER, nightly=True),
    Way("outer momentum", {"outer": "momentum:0.3"}, OUTER, nightly=True),
    Way("outer server_momentum", {"outer": "server_momentum:0.5:0.9"}, OUTER, nightly=True),
    Way("outer, power_sgd", NESTEROV | {"codec": "power_sgd:2"}, OUTER),
    Way("inner reset", {"inner": "reset"}, RESETS, nightly=True),
    Way("inner reset, outer, random_k", {"inner": "reset", "codec": "random_k:0.1"} | NESTEROV, RESETS),
    Way("inner averaged", {"inner": "averaged"}, nightly=True),
    Way("inner averaged, outer", {"inner": "averaged"} | NESTEROV, OUTER, nightly=True),
    Way("inner averaged, pace", {"inner": "averaged", "pace": "own"}, by_chance=BY_SPEED, steps_ms=UNEVEN),
    Way("inner averaged, auto", {"inner": "averaged", "period": "auto"}, FORGETS, BY_TIME, nightly=True),
    Way("inner averaged, sites", {"inner": "averaged"} | SITES, nightly=True),
    Way("fragments", {"fragments": 3}, TURNS, nightly=True),
    Way("fragments, outer, int8", {"fragments": 3, "codec": "int8"} | NESTEROV, OUTER, BY_RANK),
    Way("fragments, outer, top_k", {"fragments": 3, "codec": "top_k:0.1"} | NESTEROV, OUTER | UNSAVED, nightly=True),
    Way("fragments, inner reset", {"fragments": 3, "inner": "reset"}, RESETS, nightly=True),
    Way("more fragments than numbers", {"fragments": 1000}, TURNS, nightly=True),
    Way("overlap", {"overlap": True}),
    Way("overlap, outer", {"overlap": True} | NESTEROV, OUTER, nightly=True),
    Way("overlap, int8", {"overlap": True, "codec": "int8"}, by_chance=BY_RANK, nightly=True),
    Way("overlap, top_k", {"overlap": True, "codec": "top_k:0.1"}, nightly=True),
    Way("overlap, power_sgd", {"overlap": True, "codec": "power_sgd:2"}, nightly=True),
    Way("overlap, fragments, outer", {"overlap": True, "fragments": 3} | NESTEROV, OUTER, nightly=True),
    Way(
        "overlap, share, fragments, outer, int8",
        {"overlap": True, "overlap_share": 0.5, "fragments": 3, "codec": "int8"} | NESTEROV,
        OUTER,
        whole=True,
    ),
    Way("pace", {"pace": "own"}, by_chance=BY_SPEED, steps_ms=UNEVEN, nightly=True),
    Way(
        "pace, outer, int8", {"pace": "own", "codec": "int8"} | NESTEROV, OUTER, BY_SPEED, nightly=True, steps_ms=UNEVEN
    ),
    Way(
        "pace, outer, top_k",
        {"pace": "own", "codec": "top_k:0.1"} | NESTEROV,
        OUTER,
        BY_SPEED,
        nightly=True,
        steps_ms=UNEVEN,
    ),
    Way("drift", {"drift": "corrected"}, UNCORRECTED),
    Way("drift, pace", {"drift": "corrected", "pace": "own"}, UNCORRECTED, BY_SPEED, steps_ms=UNEVEN, nightly=True),
    Way("sites", SITES, nightly=True),
    Way("sites, outer, top_k", SITES | {"codec": "top_k:0.1"} | NESTEROV, OUTER | UNFORESEEN),
    Way("sites, inner reset", SITES | {"inner": "reset"}, RESETS, nightly=True),
    Way("int8", {"codec": "int8"}, by_chance=BY_RANK, nightly=True),
    Way("top_k", {"codec": "top_k:0.1"}, nightly=True),
    Way("sign", {"codec": "sign"}, nightly=True),
    Way("random_k", {"codec": "random_k:0.1"}, nightly=True),
    Way("power_sgd", {"codec": "power_sgd:2"}, nightly=True),
    Way("samples", SAMPLES, IN_A_SCRIPT, ended_by="samples", nightly=True),
    Way("samples, overlap", SAMPLES | {"overlap": True}, IN_A_SCRIPT, ended_by="samples", nightly=True),
    Way("samples, pace", SAMPLES | {"pace": "own"}, IN_A_SCRIPT, BY_SPEED, "samples", steps_ms=UNEVEN, nightly=True),
    Way("epochs", EPOCHS, IN_A_SCRIPT, ended_by="epochs"),
    Way("epochs, sites, top_k", EPOCHS | SITES | {"codec": "top_k:0.1"}, IN_A_SCRIPT, ended_by="epochs", nightly=True),
    Way("stop", STOP, IN_A_SCRIPT, ended_by="stop"),
    Way("stop, overlap", STOP | {"overlap": True}, IN_A_SCRIPT | DROPPED, ended_by="stop", nightly=True),
    Way("schedule", task_file="recipes/schedule.py"),
    Way("schedule, pace", {"pace": "own"}, {}, BY_SPEED, steps_ms=UNEVEN, task_file="tasks/scheduled.py", nightly=True),
    Way("schedule, sites", SITES, task_file="tasks/scheduled.py", nightly=True),
    Way("accumulation, clip", task_file="recipes/accumulation.py", nightly=True),
    Way("accumulation, overlap", {"overlap": True}, task_file="tasks/accumulating.py"),
    Way("bf16", task_file="recipes/bf16.py", nightly=True),
    Way("bf16, outer, top_k", {"codec": "top_k:0.1"} | NESTEROV, task_file="tasks/halves.py", whole=True),
    Way("bf16, gossip", GOSSIP, MIXES, task_file="tasks/halves.py", nightly=True),
    Way("fp16", task_file=FP16),
    Way("fp16, overlap, outer", {"overlap": True} | NESTEROV, OUTER | SCALED, task_file=FP16, nightly=True),
    Way("groups", task_file="recipes/groups.py", nightly=True),
    Way("groups, inner averaged", {"inner": "averaged"}, task_file="recipes/groups.py", nightly=True),
    Way("ema", task_file="recipes/ema.py", nightly=True),
    Way("lora", {}, BY_SIZE, task_file="recipes/lora.py", nightly=True),
    Way("lora, power_sgd", {"codec": "power_sgd:2"}, BY_SIZE, task_file="recipes/lora.py"),
    Way("workers", task_file="tasks/loading.py", nightly=True),
    Way("metrics", {"evaluate_every": 2}, task_file="recipes/metrics.py", nightly=True),
    Way("arguments", {"arguments": "--width 20 --rate 0.05"}, task_file="recipes/arguments.py", nightly=True),
    Way("unfreezing", task_file="recipes/gradual.py"),
    Way("unfreezing, outer, top_k", {"codec": "top_k:0.1"} | NESTEROV, task_file=THAWING, nightly=True),
    Way("unfreezing, power_sgd", {"codec": "power_sgd:2"}, task_file=THAWING, nightly=True),
    Way("unfreezing, auto", {"period": "auto"}, FORGETS, BY_TIME | LONGER, task_file=THAWING, nightly=True),
    Way("unfreezing, sites", SITES, task_file=THAWING, nightly=True),
    Way(
        "unfreezing, pace, int8",
        {"pace": "own", "codec": "int8"},
        by_chance=BY_SPEED,
        steps_ms=UNEVEN,
        task_file=THAWING,
        nightly=True,
    ),
    Way("unfreezing, overlap, fragments", {"overlap": True, "fragments": 3}, task_file=THAWING),
    Way("ring mixing", RING, MIXES, BY_ORDER),
    Way("gossip", GOSSIP, MIXES, whole=True),
    Way("gossip, torus", GOSSIP | {"topology": "torus"}, MIXES, nightly=True),
    Way("gossip, one peer", GOSSIP | {"topology": "one_peer_exponential"}, MIXES, BY_START, all_at_once=False),
    Way("gossip, auto", GOSSIP | {"period": "auto"}, MIXES | FORGETS, BY_TIME, nightly=True, longest=16),
    Way("gossip, choco", CHOCO, MIXES | ESTIMATES),
    Way("gossip, push_sum", GOSSIP | {"algorithm": "push_sum"}, MIXES),
    Way("gossip, ad_psgd", GOSSIP | {"algorithm": "ad_psgd"}, MIXES | PAIRS, BY_ORDER, all_at_once=False),
    Way("gossip, tracking", GOSSIP | {"algorithm": "gradient_tracking"}, MIXES),
    Way("gossip, epidemic", GOSSIP | {"algorithm": "epidemic"}, MIXES),
    Way("gossip, swim", GOSSIP | {"membership": "swim"}, MIXES),
    Way("gossip, swim, links", GOSSIP | {"membership": "swim:3"}, MIXES, BY_LINKS, nightly=True),
    Way("gossip, moshpit", GOSSIP | {"algorithm": "moshpit"}, MIXES, IN_ROWS, all_at_once=False),
    Way("servers, bsp", SERVERS, BY_CHANGE, ADDED),
    Way("servers, async", SERVERS | ASYNC, BY_CHANGE, ARRIVED),
    Way(
        "servers, ssp",
        SERVERS | {"consistency": "ssp:2", "server_update": "adagrad:0.05"},
        BY_CHANGE,
        ARRIVED,
        nightly=True,
    ),
    Way("servers, backup", SERVERS | {"algorithm": "backup:1"}, BY_CHANGE, FIRST, nightly=True),
    Way("servers, softsync", SERVERS | ASYNC | {"algorithm": "softsync"}, BY_CHANGE, ARRIVED, nightly=True),
    Way(
        "servers, easgd",
        SERVERS | ASYNC | {"algorithm": "easgd:0.2:2"},
        BY_CHANGE,
        ARRIVED,
        nightly=True,
        own=frozenset({"parameter_server/model"}),
    ),
    Way("servers, filters", SERVERS | ASYNC | FILTERED, BY_CHANGE, ARRIVED, nightly=True),
    Way("servers, filtered pulls", SERVERS | {"pull_filters": "significant:0.02"}, BY_CHANGE, ADDED, nightly=True),
    Way("hogwild", HOGWILD, IN_MEMORY, INTERLEAVED),
    Way("hogwild, locked", HOGWILD | {"algorithm": "hogwild:locked:1"}, IN_MEMORY, INTERLEAVED, nightly=True),
    Way(
        "gradients",
        {"average": "gradients", "period": "1"},
        dict.fromkeys(IN_SIMULATION, GRADIENTS),
        as_task="every step",
    ),
)


def _cases(promise: str, *, always: bool) -> Iterator[Any]:
    for way in WAYS:
        if promise in way.by_chance or (way.task_file and not way.recipe and promise in SCRIPTS):
            continue
        marks = [] if way.in_turn(promise, always=always) else [pytest.mark.soak]
        if promise in way.cannot:
            marks.append(pytest.mark.xfail(reason=way.cannot[promise], raises=AssertionError, strict=True))
        yield pytest.param(way, id=way.name, marks=marks)


def promised(test: Test) -> Test:
    """Try the promise for which the test is named with every way."""
    cases = list(_cases(test.__name__.removeprefix("test_"), always=False))
    return pytest.mark.parametrize("way", cases)(test)


def promised_always(test: Test) -> Test:
    """The same, and for each change with all ways that are not nightly, and a third of those that are."""
    cases = list(_cases(test.__name__.removeprefix("test_"), always=True))
    return pytest.mark.parametrize("way", cases)(test)

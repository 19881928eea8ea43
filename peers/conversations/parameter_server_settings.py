"""The settings of the parameter server."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from ...aggregation.consistency import CONSISTENCIES, Consistency, parse_consistency
from ...aggregation.filters.filter import Filters
from ...aggregation.filters.pulls import PullFilters, parse_pull_filters
from ...aggregation.filters.registry import FILTERS, parse_filters
from ...aggregation.server.function import ServerFunction
from ...aggregation.server.registry import SERVER_FUNCTIONS, parse_server_function
from ...protocols.collectives.bound import NORM_LIMIT
from ...protocols.limits import VIEW_MEMBERS_MAX
from ...protocols.parameter_server.algorithms.algorithm import MapReduce, Shared
from ...protocols.parameter_server.algorithms.registry import ALGORITHMS, AnyAlgorithm, parse_algorithm
from ...protocols.parameter_server.partitions import PARTITIONS_MAX
from ...protocols.parameter_server.placement import FEWEST_MAX
from ..settings import validators as rules
from ..settings.common import CommonSettings
from ..settings.fields import NO_STOP, OwnSettings, SettingsError, another_algorithm, setting
from ..settings.validators import Parsed, Rule, parsed
from ..task.definitions import Definition
from .own_server_functions import OfTask, chosen_server_function

_COPIES, _COPIES_MAX = 2, 8


def _algorithm() -> Rule:
    said = f"one of {', '.join(ALGORITHMS)}, with options as in backup:1"
    return Rule(parsed(parse_algorithm), said, "NAME", str)


def _consistency() -> Rule:
    said = f"one of {', '.join(CONSISTENCIES)}, with options as in ssp:3"
    return Rule(parsed(parse_consistency), said, "NAME", str)


def _filters() -> Rule:
    said = f"some of {', '.join(FILTERS)}, or last a codec, with options as in significant:0.01,int8"
    return Rule(parsed(parse_filters), said, "NAMES", str)


def _pull_filters() -> Rule:
    said = "changed or significant, and last a codec, with options as in significant:0.01,int8"
    return Rule(parsed(parse_pull_filters), said, "NAMES", str)


def _server_update() -> Rule:
    said = f"one of {', '.join(SERVER_FUNCTIONS)}, or a name of the task's own, with options as in sgd:0.1"
    return Rule(parsed(chosen_server_function), said, "NAME", str)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServerSettings(OwnSettings):
    """The settings of the parameter server (``--protocol parameter-server``)."""

    first: ClassVar[tuple[str, ...]] = ("servers", "algorithm", "consistency")
    groups: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "Servers": ("servers", "copies", "ranges", "server_update"),
        "What workers do": ("algorithm", "consistency", "filters", "pull_filters"),
        "Faults, in seconds": ("norm_limit",),
    }
    instead: ClassVar[Mapping[str, str]] = {
        "period": "with --algorithm downpour:N a worker pushes every N local steps",
        "codec": "--filters int8 encodes what workers push",
        "stop": NO_STOP,
    }

    servers: int = setting(1, rules.whole(1, 256), "Holders of the model, on top of --peers.", agreed=True)
    algorithm: Parsed[AnyAlgorithm] = setting("sync", _algorithm(), "How pushes become updates.", agreed=True)
    consistency: Parsed[Consistency] | None = setting(
        None, _consistency(), "What a pull contains. [default: the algorithm's]", agreed=True
    )
    server_update: Parsed[ServerFunction | OfTask] | None = setting(
        None, _server_update(), "What a push does. [default: the algorithm's]", agreed=True
    )
    filters: Parsed[Filters] | None = setting(
        None, _filters(), "What is left for later pushes. [default: nothing]", agreed=True
    )
    pull_filters: Parsed[PullFilters] | None = setting(
        None, _pull_filters(), "What is left out of pulls. [default: nothing]", agreed=True
    )
    copies: int | None = setting(
        None, rules.whole(1, _COPIES_MAX), "Servers that hold each value. [default: 2, or all]", agreed=True
    )
    ranges: int = setting(1, rules.whole(1, FEWEST_MAX), "Ranges of the model, at least.", agreed=True)
    norm_limit: float = setting(NORM_LIMIT, rules.times(10, 1e30), "Largest growth of a model's norm.", agreed=True)

    def goes_on_from(self, before: OwnSettings) -> str:
        """A line for the user if a run of the settings `before`, which are a parameter server's too, goes on with these
        by another algorithm; "": the algorithm is the same. Raises SettingsError where one of two different algorithms
        is hogwild, which has no servers, or map and reduce, whose servers hold sums by partitions. All others go on
        from each other's values."""
        assert isinstance(before, ParameterServerSettings)
        line = another_algorithm(before.algorithm.text, self.algorithm.text)
        earlier, now = before.algorithm.value, self.algorithm.value
        if not line:
            return ""
        if isinstance(earlier, MapReduce | Shared) or isinstance(now, MapReduce | Shared):
            own = before.algorithm.text
            why = f"must be {own} again: its checkpoints hold other values, got {self.algorithm.text}"
            raise SettingsError(why, "algorithm", "--algorithm")
        left = earlier.meets and not now.meets
        return f"{line}: from the servers' model, which the workers take in place of their own" if left else line

    def check(self, common: CommonSettings) -> None:
        servers = self.servers
        if common.peers + servers > VIEW_MEMBERS_MAX:
            raise SettingsError(f"and --peers are {common.peers + servers}, beyond {VIEW_MEMBERS_MAX}", "servers")
        if self.copies is not None and self.copies > servers:
            raise SettingsError(f"must be at most the number of servers, {servers}, got {self.copies}", "copies")
        try:
            self.algorithm.value.under(self.bound)
        except ValueError as error:
            raise SettingsError(f"does not go with {self.algorithm.text}: {error}", "consistency") from None
        if isinstance(self.algorithm.value, Shared):
            self._check_shared(common)
            return
        self._check_filters()
        if isinstance(algorithm := self.algorithm.value, MapReduce):
            self._check_mapped(algorithm, common.peers)

    def _check_shared(self, common: CommonSettings) -> None:
        """Nothing is pushed where workers share memory, and there are no servers."""
        if common.edge:
            raise SettingsError(f"{self.algorithm.text} does not go with --edge, which shares no memory", "algorithm")
        given = {
            "servers": self.servers > 1,
            "copies": self.copies,
            "server_update": self._chosen,
            "filters": self.filters,
            "pull_filters": self.pull_filters,
        }
        for name, value in given.items():
            if value:
                why = "its workers share memory, without servers and pushes: leave it out"
                raise SettingsError(f"does not go with --algorithm {self.algorithm.text}: {why}", name)

    def _check_filters(self) -> None:
        algorithm, why = self.algorithm.value, ""
        if self.pull_filters is not None and isinstance(algorithm, MapReduce):
            of = "its workers all compute at the same point"
            raise SettingsError(f"do not go with --algorithm {self.algorithm.text}: {of}", "pull_filters")
        if self.filters is None:
            return
        if isinstance(algorithm, MapReduce):
            why = "its pushes are sums of which no part may be late"
        elif not isinstance(algorithm, Shared) and algorithm.meets:
            why = "its workers move by what they push, so none of it may be late"
        if why:
            raise SettingsError(f"do not go with --algorithm {self.algorithm.text}: {why}", "filters")
        if not isinstance(self._chosen, OfTask):  # else it is checked when the task is there
            self._check_filtered(self.function({}))

    def _check_filtered(self, function: ServerFunction) -> None:
        if self.filters is not None and self.filters.value.forget and function.takes != "gradient":
            raise SettingsError("have kkt, which needs a --server-update that takes gradients", "filters")

    def _check_mapped(self, algorithm: MapReduce, peers: int) -> None:
        if (count := algorithm.partitions(peers)) > PARTITIONS_MAX:
            raise SettingsError(f"makes {count} portions for {peers} peers, beyond {PARTITIONS_MAX}", "algorithm")
        if not isinstance(self._chosen, OfTask):  # else it is checked when the task is there
            self._check_fits(algorithm, self.function({}))

    def _check_fits(self, algorithm: MapReduce, function: ServerFunction) -> None:
        try:
            algorithm.check(function)
        except ValueError as error:
            raise SettingsError(f"does not go with {self.algorithm.text}: {error}", "server_update") from None

    @property
    def bound(self) -> Consistency:
        """How stale the values of a pull may be: the chosen consistency, or else the algorithm's usual one."""
        usual = self.algorithm.value.usual[0]
        return parse_consistency(usual) if self.consistency is None else self.consistency.value

    @property
    def _chosen(self) -> ServerFunction | OfTask | None:
        return None if self.server_update is None else self.server_update.value

    def function(self, defined: Mapping[str, Definition]) -> ServerFunction:
        """The server function: the chosen one, or else the one that the algorithm always uses (`MapReduce.keeps`), or
        its usual one. `defined`: the task's own definitions, by name. Raises ValueError when the task's is no server
        function, or does not go with the algorithm or the filters."""
        algorithm, chosen = self.algorithm.value, self._chosen
        if isinstance(chosen, OfTask):
            function = chosen.made(defined[chosen.name].value)
            if isinstance(algorithm, MapReduce):
                self._check_fits(algorithm, function)
            self._check_filtered(function)
            return function
        if chosen is not None:
            return chosen
        own = algorithm.keeps if isinstance(algorithm, MapReduce) else None
        return parse_server_function(algorithm.usual[1]) if own is None else own

    @property
    def held(self) -> int:
        """The number of servers that are to hold a copy of each value: the setting `copies`, or else 2. While fewer
        servers are there, fewer do."""
        return _COPIES if self.copies is None else self.copies

    def server_count(self) -> int:
        return 0 if isinstance(self.algorithm.value, Shared) else self.servers

    def asks_of_task(self) -> Mapping[str, str]:
        if not isinstance(self._chosen, OfTask):
            return {}
        known = ", ".join(SERVER_FUNCTIONS)
        return {self._chosen.name: f"--server-update {self._chosen.name} is none of {known}"}

    def takes_rows(self) -> bool:
        return not isinstance(self.algorithm.value, MapReduce | Shared)

    def tasks_only(self) -> str:
        algorithm, chosen = self.algorithm, self._chosen
        if isinstance(algorithm.value, MapReduce):
            return f"--algorithm {algorithm.text} maps the rows of a task's data(): a script has none"
        if isinstance(algorithm.value, Shared):
            return (
                f"--algorithm {algorithm.text} moves the parameters of a task's model into shared memory: give a task"
            )
        if isinstance(chosen, OfTask):
            return (
                f"--server-update {chosen.name} is no server function of the library, and a script has none of its own"
            )
        return ""

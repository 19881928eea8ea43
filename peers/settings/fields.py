"""The declaration of a setting: its default, its rule, a line of help, and the commands that have a flag for it. Also
the base class of a conversation's own settings, and the value of ``--protocol``."""

from __future__ import annotations

import dataclasses
import os.path
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from ...aggregation.options import OptionError, UnknownName
from ..memberships import Kind, Views
from .validators import Parsed, Rule, shown

if TYPE_CHECKING:
    from ...aggregation.goals import Goal
    from .common import ChosenSettings, CommonSettings

FILE_ENDING: Final = ".py"
"""The ending by which a value of ``--protocol`` is the path of a file."""
VERBS: Final = ("train", "join", "simulate")
"""The commands with flags for settings."""


class SettingsError(ValueError):
    """An invalid setting, as one line for the user. `problem`: the fault, in words that follow the setting's name, e.g.
    "must be at most 4, got 5"; `name`: the setting; `place`: the flag, or file and line, that gave it."""

    def __init__(self, problem: str, name: str = "", place: str = "") -> None:
        super().__init__(f"{place or name} {problem}".strip())
        self.problem, self.name = problem, name


def setting(
    default: Any,
    rule: Rule,
    help: str,
    *,
    agreed: bool = False,
    former: str = "",
    verbs: str | None = None,
    joining: str = "",
) -> Any:
    """Declare a setting as a dataclass field. `rule`: checks its value; a default of None also allows None. `help`: a
    few words that fit behind the flag in a line of 80 columns. `agreed`: all peers of a run have the same value.
    `former`: the setting's previous name, which is still accepted. `verbs`: the commands that have a flag for it, of
    `VERBS`, separated by spaces; None: all, but not ``join`` if `agreed`. `joining`: the help of ``join``, which starts
    one peer of a run that others began; "": it is `help`."""
    taken_by = verbs.split() if verbs is not None else [verb for verb in VERBS if verb != "join" or not agreed]
    metadata = {
        "rule": rule,
        "help": help,
        "agreed": agreed,
        "former": former,
        "verbs": taken_by,
        "joining": joining or help,
    }
    return dataclasses.field(default=default, metadata=metadata)


def checked(field: dataclasses.Field[Any], value: object) -> Any:
    """The normal form of a setting's value, by its rule; None stays None where that is the default. Raises
    SettingsError for an invalid value."""
    rule: Rule = field.metadata["rule"]
    if value is None and field.default is None:
        return None
    try:
        return rule.take(value)
    except OptionError as error:
        raise SettingsError(f"is refused: {error}", field.name) from None
    except ValueError as error:
        close = get_close_matches(error.name, error.known, 1) if isinstance(error, UnknownName) else []
        hint = f"; did you mean {close[0]}?" if close else ""
        raise SettingsError(f"must be {rule.said}, got {shown(value)}{hint}", field.name) from None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Settings whose fields are declared by `setting`. Construction replaces each value by its normal form, and raises
    SettingsError for an invalid one."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if "rule" in field.metadata:
                object.__setattr__(self, field.name, checked(field, getattr(self, field.name)))

    def values(self) -> dict[str, Any]:
        """Returns all settings declared with `setting`, by their field's name. A `Parsed` value becomes its text, so
        that each value is a text, a number, a boolean or None. Other fields are left out."""
        found = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self) if "rule" in field.metadata
        }
        return {name: value.text if isinstance(value, Parsed) else value for name, value in found.items()}


NO_STOP: Final = (
    "no model is common to its peers in every round, so none is judged for all: end it by --steps; the model with the "
    "best metric is kept as well, samovar.load(..., best=True)"
)
"""For `OwnSettings.instead`: the text for "stop"."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OwnSettings(Declared):
    """Base class for the settings of one conversation, beside the common ones. A subclass is a frozen dataclass whose
    fields are declared by `setting`, with other names than the common settings have. The methods tell the rest of the
    program what follows from the settings. A subclass overrides those for which the usual answer, given here, is
    wrong."""

    first: ClassVar[tuple[str, ...]] = ()
    """Settings that the help of a command lists first, for beginners."""
    groups: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Heading in the help -> names of the settings under it, in the order of the help. A heading of the common settings
    (`peers.cli.flags`) may be used again; the settings are then appended there."""
    instead: ClassVar[Mapping[str, str]] = {}
    """Another conversation's setting, by name -> what serves here in its place, for the error where it is given."""

    @classmethod
    def of(cls, settings: ChosenSettings) -> Self:
        """`settings.own`, the own settings of the chosen conversation, typed as this class. The caller makes sure that
        they are of this class: it is only asserted."""
        assert isinstance(settings.own, cls), f"{settings.protocol.text} has settings of its own"
        return settings.own

    def check(self, common: CommonSettings) -> None:
        """Raises SettingsError for the first setting that contradicts another one, own or common."""

    def goes_on_from(self, before: OwnSettings) -> str:
        """A line for the user if a run of the settings `before`, of the same class, goes on with these by another
        algorithm; "": the algorithm is the same. Raises SettingsError if its checkpoints lack values that these
        settings need."""
        return ""

    def server_count(self) -> int:
        """The number of founding peers that hold the model for the others and train nothing. They come on top of
        `peers`."""
        return 0

    def scripts_only(self) -> str:
        """The reason why these settings need a script's own loop, in one line; "": a task can train with them too."""
        return ""

    def tasks_only(self) -> str:
        """The reason why these settings need a task, in one line; "": a script can train with them too."""
        return ""

    def has_an_end(self) -> bool:
        """Whether these settings are sure to end the run without a number of local steps. A goal, which may never be
        reached, does not count."""
        return False

    def check_metrics(self, names: Collection[str], headline: str, scales: Mapping[str, str]) -> None:
        """Raises SettingsError when these settings go by a metric that is not among the `names` of those that an
        evaluation gives, or by a value that this metric cannot have. `headline`: the name of the metric by which the
        task's models are compared; "": the task does not evaluate. `scales`: those that the task declares, by name."""

    def goal(self) -> Goal | None:
        """The goal that ends the run: a metric, and the value that it has to reach; None: there is none."""
        return None

    def watched_metric(self) -> str:
        """The name of the goal's metric (`goal`); "": there is no goal."""
        goal = self.goal()
        return goal.metric if goal else ""

    def brings_gradients(self) -> bool:
        """Whether peers exchange gradients in place of models."""
        return False

    def asks_of_task(self) -> Mapping[str, str]:
        """Name -> reason, of each further definition that the task file must have for these settings, beside those of
        `task.task`. The reason is for the error where a file lacks it. Empty: there are none."""
        return {}

    def takes_rows(self) -> bool:
        """Whether peers exchange the rows of a task's tables by themselves (`task.row_tables`), and not in the
        vector."""
        return False

    def optimizer_state(self) -> str:
        """The treatment of the local optimizer's state in an exchange: "kept", "averaged" or "reset"."""
        return "kept"

    def sites_need(self) -> str:
        """The flag that must be given for ``--site`` to have an effect; "": it has one with these settings."""
        return ""

    def membership_kind(self) -> Kind:
        """The membership that the conversation runs on."""
        return Views()

    def idle_here(self, common: CommonSettings) -> str:
        """One line for the user on a setting that has no effect, or not the full one, while only the founding peers are
        in the run, e.g. a site period where no two of them are at one site; "": there is none."""
        return ""


def another_algorithm(before: str, now: str) -> str:
    """The line for a run whose values of ``--algorithm`` were `before` and are `now`, each ``NAME`` or
    ``NAME:PARAMETERS``: it goes on by another algorithm; "": both have the same NAME, perhaps with other parameters."""
    earlier, name = (text.partition(":")[0] for text in (before, now))
    return "" if earlier == name else f"the run goes on from the models of {earlier} by another algorithm, {name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Spoken(Parsed[type[OwnSettings]]):
    """The conversation that ``--protocol`` chooses. `text`: its name, or the absolute path of its file; `value`: the
    class of its own settings. `digest`: SHA-256 of the user's file, or of the module in an installed package, without
    the modules that it imports; each peer has its own copy. "": the conversation is the library's. `registered`: its
    declaration (`peers.conversations.registry`)."""

    digest: str = ""
    registered: object = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The conversation's name, or the name of its file without the folder, which differs between machines."""
        return self.text.rpartition("/")[2]

    @property
    def file(self) -> str | None:
        """The path of its file, relative to the working folder; None: the conversation is the library's, or an
        installed package's."""
        return os.path.relpath(self.text) if self.text.endswith(FILE_ENDING) else None

    @property
    def agreed(self) -> str:
        """The text by which peers compare their conversations: the name, and, behind a #, the digest if there is
        one."""
        return f"{self.name}#{self.digest}" if self.digest else self.name

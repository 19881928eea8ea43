"""A run whose first peers are processes on this machine, as `samovar train` and `samovar.train` start it."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...protocols.addresses import split_address
from ...protocols.conversation import End
from ..conversations.registry import conversation
from ..errors import RunFailed
from ..records.columns import Columns
from ..records.ends import why_over
from ..records.result import Lost, Result
from ..records.units import after_failure_text, count_text, left_behind_text, over_before_text
from ..run_settings.settings import Settings, Tell, of_tasks
from ..settings.fields import SettingsError
from ..task.definitions import check_defined, misspelt
from ..task.task import NAMES, TaskError, check_constants, check_trainable, kind_of
from ..training.devices import check_devices
from .at_work import AtWork, tell_waits
from .display import Display
from .launcher import Launch, script_command
from .resuming import has_checkpoint, wished
from .run_folder import (
    ANOTHER,
    command_line,
    conclude,
    forget_failure,
    keep_failure,
    keep_resuming,
    keep_settings,
    kept,
    make_folder,
    spent,
)
from .run_socket import answered
from .spawned import failed_afterwards
from .spec import founding_orders, log_path
from .stop_request import StopRequest
from .unbegun import remove_unbegun
from .ways_in import WaysIn

_SCRIPT_STOPPED = (
    "stopped; a script goes on from checkpoints of its own: if it keeps some, start it again, as a new run in another "
    "folder"
)


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run. `result`: None when the run as a whole failed, or the peers were never all up. `wrong`: the
    failure in one line; "": none. `stopped`: the user stopped it. `line`: the line that the user is told then, with the
    command or call that resumes the run, if it can be resumed."""

    result: Result | None = None
    wrong: str = ""
    stopped: bool = False
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun:
    """A run that is ready to begin in its `folder`. `script`: its peers run the script `task`; else they train the
    task. `resumed_by`: the command by which it goes on from its checkpoints; "": it begins anew. `role`: of its first
    peers only those with this role are on this machine, and the others join from elsewhere; None: all are."""

    task: Path
    script: bool
    settings: Settings
    folder: Path
    resumed_by: str = ""
    role: str | None = None

    @property
    def resumed(self) -> bool:
        """Whether the run goes on from its checkpoints."""
        return bool(self.resumed_by)

    @property
    def columns(self) -> Columns:
        """The columns of its conversation's records: name -> title."""
        return conversation(self.settings).columns

    @property
    def watched(self) -> str:
        """The metric whose value ends the run; "": none does."""
        return self.settings.own.watched_metric()

    @property
    def steps(self) -> int:
        """Local steps of each peer; 0: the number is not known before, because a script or another setting decides when
        the run ends."""
        return 0 if self.script else self.settings.steps_max or 0

    async def train(self, display: Display, stop: StopRequest, again: str) -> Ended:
        """Train until the run ends or `stop` is set, show the run on `display`, and write the result. `again`: how the
        user resumes the run if it is stopped, in words. Raises ValueError when another process runs it already or a key
        file cannot be used, TaskError and SettingsError when a peer refuses the task or the settings before all peers
        are up, and OSError. A failure of the run raises nothing: it is the returned `wrong`."""
        with kept(self.folder):
            if not self.resumed:
                keep_settings(self.folder, self.settings)
            forget_failure(self.folder)
            ended = Ended()
            try:
                ended = await self._train(display, stop, "" if self.script else again)
            except (TaskError, SettingsError) as refused:
                ended = Ended(wrong=str(refused))
                raise
            finally:
                if ended.result is None:
                    self._keep_or_remove(ended.wrong)
            return ended

    def _keep_or_remove(self, wrong: str) -> None:
        """Remove the folder of a run that never began, if its name was not chosen by the user and nothing in it tells
        more; else write the failure `wrong` there, if it is one."""
        told = self.resumed or str(self.folder) in wrong
        if not told and remove_unbegun(self.folder, self.settings):
            return
        if wrong:
            keep_failure(self.folder, wrong)

    async def _train(self, display: Display, stop: StopRequest, again: str) -> Ended:
        settings, folder, began = self.settings, self.folder, time.monotonic()
        earlier = spent(folder)
        resumed_s = earlier.recorded_s if self.resumed else None
        all_orders, invite = founding_orders(self.task, settings, folder, resumed_s=resumed_s, role=self.role)
        command = script_command(self.task, shlex.split(settings.arguments)) if self.script else None
        ends_together = conversation(settings).ends_together and not self.script  # scripts go on by themselves
        of = count_text(settings.peers, "worker" if settings.own.server_count() else "peer")
        launch = Launch(
            all_orders,
            settings,
            command,
            display.put,
            ends_together=ends_together,
            gathered=lambda here: display.gathers(f"{here:,} of {of}"),
        )
        own = settings.arguments
        ways_in = WaysIn(self.task, folder, invite, launch.reinvite, protocol=settings.protocol.file, arguments=own)
        async with answered(folder, ways_in.answer, display.say):
            with display:
                if self.resumed:
                    display.goes_on(earlier.recorded_s, earlier.peers)
                clock = asyncio.get_running_loop().time
                at_work = AtWork(launch.peers, settings.patience_s, clock) if self.script else None
                waiting = asyncio.create_task(tell_waits(stop, launch.peers, display, at_work))
                try:
                    await launch.run(stop, lambda members: self._met(display, ways_in, members))
                except RunFailed as failure:
                    heard = display.heard
                    display.tells(str(failure))
                    saved = f"{heard.noun} {heard.saved} is saved, go on with: {again}" if heard.saved and again else ""
                    advice = after_failure_text(heard.elsewhere, saved, self.role or "")
                    return Ended(wrong="; ".join(filter(None, (str(failure), advice))))
                finally:
                    waiting.cancel()
        worked = launch.going or stop.is_set() or not self.resumed
        took_s = time.monotonic() - began if worked else 0.0
        over = all(peer.finished for peer in launch.peers)
        stopped = stop.is_set() and not over
        ended = self._conclude(display, launch, earlier.wall_s + took_s, earlier.wall_s, stopped=stopped)
        if stop.is_set() and over:
            cut = any(peer.late for peer in launch.peers)
            display.say(f"the run was over before it was stopped{': only what the script does then was cut off' * cut}")
            return Ended(ended.result, ended.wrong, cut)
        told = ""
        if stop.is_set():
            resumable = again and has_checkpoint(folder, settings.founders)
            nothing = "stopped before the first checkpoint: there is nothing to resume" if again else _SCRIPT_STOPPED
            told = f"stopped; go on with: {again}" if resumable else nothing
            display.say(told)
            if ended.result and (line := left_behind_text(ended.result.elsewhere, resumable=bool(again))):
                display.say(line)
        elif not ended.wrong and self.resumed and not launch.going:
            display.say(over_before_text(_end(launch), settings.steps_max))
        return Ended(ended.result, ended.wrong, stop.is_set(), told)

    def _met(self, display: Display, ways_in: WaysIn, members: list[dict[str, str]]) -> None:
        """All peers are up: tell the user how other machines join."""
        settings = self.settings
        if self.resumed:
            keep_settings(self.folder, settings)  # not before all peers could go on with them
        local = split_address(members[0]["address"])[0].startswith("127.")
        told, unwritten = ways_in.lines, ways_in.met(members)
        if ways_in.lines == told:
            return  # a peer was restarted, and others join as before
        if self.resumed:
            keep_resuming(self.folder, self.resumed_by)
        waits = f"waiting for {count_text(settings.peers, 'worker')}; " if self.role else ""
        only_here = f", after copying {self.task} there" if self.task.parent == self.folder and not local else ""
        display.say(f"{waits}join from {'this' if local else 'another'} machine{only_here}: {ways_in.lines[0]}")
        if unwritten:
            display.say(unwritten)
        if idle := settings.own.idle_here(settings):
            display.say(f"until others join from elsewhere: {idle}" if not settings.own.sites_need() else idle)
        if self.script:
            display.say(f"what the script prints goes to {log_path(self.folder, 'N')}, for each peer N")

    def _conclude(self, display: Display, launch: Launch, wall_s: float, before_s: float, *, stopped: bool) -> Ended:
        wrong = [f"peer {peer.name}: {why}" for peer in launch.peers if (why := (peer.ended or {}).get("unsaved"))][:1]
        wrong += failed_afterwards(launch.peers)[:1] if self.script else []
        if not launch.met:
            return Ended(wrong="; ".join(wrong))
        ends = [(one.orders.name, one.ended) for one in launch.peers if one.ended and one.ended["metrics"]]
        ends = [one for one in ends if one[1].get("last")] or ends  # a script's last model comes before earlier ones
        failed = [
            Lost(
                peer=peer.orders.name,
                when=before_s + peer.exited_s,
                why=f"its process {peer.death()}" if peer.exit_code < 0 else peer.failure,
            )
            for peer in launch.peers
            if peer.exit_code and not (peer.late or peer.finished)
        ]
        result = conclude(
            self.folder,
            display.heard,
            wall_s=wall_s,
            measured=[(name, end["metrics"]) for name, end in ends],
            scales=ends[-1][1].get("scales") if ends else None,
            end=_end(launch),
            why=why_over(finished=not stopped, script=self.script, role=self.role or ""),
            goal=self.settings.own.goal(),
            lost=failed,
            report=self.settings.report,
        )
        wrong += filter(None, [display.end(result)])
        for peer in launch.peers:
            for told in filter(None, map((peer.ended or {}).get, ("unkept", "forgot"))):
                display.say(f"peer {peer.name}: {told}")
            if peer.late:
                display.say(f"peer {peer.name}: {peer.killed}")
        return Ended(result, "; ".join(wrong))


def prepared(
    task: Path,
    arguments: tuple[str, ...],
    given: Mapping[str, object],
    *,
    config: Path | None = None,
    resume: Path | None = None,
    command: str | None = None,
    tell: Tell,
) -> LocalRun:
    """Check a run's task and settings, and make the folder of a new run. `given`: settings by name (None: not given),
    which override those of the file `config`, or of the run that is resumed; `resume`: folder of a stopped run, which
    goes on there, without a `config`; None: a new run; `command`: how the run was started, for its report; None: by
    this process's command line; `tell`: called with each remark on the settings. Raises TaskError, SettingsError,
    CheckpointError and other ValueErrors, each with one line of text."""
    script = kind_of(task) == "script"
    own = shlex.join(arguments)
    given = {**given, "arguments": None if script else own or None}
    if resume is not None and script:
        raise TaskError(f"{task}: a script keeps its own checkpoints, --resume is for tasks")
    if script and (idle := of_tasks(given)):
        raise TaskError(f"{task} is a training script: {idle}; arguments of its own go after --")
    settings = wished(given, config, resume, tell)
    if resume is not None:
        folder, resumed_by = resume, command or command_line()
    else:
        settings.check_founding()
        if script and (why := of_tasks(settings.not_usual()) or settings.own.tasks_only()):
            raise TaskError(f"{task} is a training script: {why}")
        if script:
            settings = settings.changed(arguments=own)
        else:
            check_trainable(task, settings.own.scripts_only())
            check_constants(task)
            asked = settings.own.asks_of_task()
            check_defined(task, asked)
            for name, near in misspelt(task, [*NAMES, *asked]).items():
                tell(f"{task}: nothing calls {name}(); did you mean {near}()?")
            check_devices(settings.device, settings.peers)
        advice = ANOTHER if script else f"{ANOTHER}, or go on with --resume {settings.run}"
        folder, resumed_by = make_folder(settings.run, task, command, advice=advice), ""
    return LocalRun(task=task, script=script, settings=settings, folder=folder, resumed_by=resumed_by)


def _end(launch: Launch) -> End | None:
    """The reason for the end of the run that its peers report; None: they report none."""
    told = [end for peer in launch.peers if (end := (peer.ended or {}).get("end"))]
    return End(**told[0]) if told else None

"""The settings of a run that begins, or that is resumed: those of its folder, overridden by the user's where they go on
from its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..checkpoints.checkpoint import CheckpointError
from ..records.run import SETTINGS_FILE, read_run
from ..run_settings.settings import Settings, Tell
from .spec import checkpoint_path


def wished(given: Mapping[str, object], config: Path | None, resume: Path | None, tell: Tell) -> Settings:
    """The settings of a run, new or resumed. `given`: settings by name (None: not given), which override those of the
    file `config` or of the resumed run; `config`: None: there is no file; `resume`: the folder of the run to resume,
    None: a new run; `tell`: called with each remark for the user. Raises SettingsError; and CheckpointError when there
    is nothing to resume, or the user gives a setting that a resumed run must keep."""
    return Settings.read(config, given, tell) if resume is None else _resumed(resume, config, given, tell)


def _resumed(folder: Path, config: Path | None, given: Mapping[str, object], tell: Tell) -> Settings:
    if config is not None or given.get("run") is not None:
        other = "--run" if config is None else "--config"
        raise CheckpointError(f"{folder}: a run is resumed where it is and as it was set: leave out {other}")
    file = folder / SETTINGS_FILE
    if not folder.exists():
        raise CheckpointError(f"{folder}: nothing to resume, there is no such folder")
    if not file.is_file():
        raise CheckpointError(f"{folder}: nothing to resume, it has no {SETTINGS_FILE}")
    settings = Settings.from_json(file.read_text(encoding="utf-8"), lambda line: tell(f"{file}: {line}"))
    if not has_checkpoint(folder, settings.founders):
        raise CheckpointError(f"{folder}: nothing to resume, {_lacking(folder, settings)}")
    if given.get("peers") not in (None, settings.peers):
        raise CheckpointError(
            f"{folder}: it has {settings.peers} peers, and is resumed with as many: leave out --peers"
        )
    if given.get("arguments") not in (None, settings.arguments):
        own = f"{settings.arguments!r:.80}"
        raise CheckpointError(f"{folder}: its task has the arguments {own}, and is resumed with them: leave out yours")
    changed = settings.with_flags(given, tell)
    if changed.protocol.name != settings.protocol.name:
        own = settings.protocol.name
        raise CheckpointError(f"{folder}: its protocol is {own}, and it is resumed with that: leave out --protocol")
    if line := changed.own.goes_on_from(settings.own):
        tell(f"{folder}: {line}")
    return changed


def _lacking(folder: Path, settings: Settings) -> str:
    """Why nothing in the folder can be resumed, in words that name the folder "it". A peer that joined a run has no
    checkpoint of a founder, from which alone the run begins again. Raises ValueError for damaged records."""
    run = read_run(folder) if any(folder.glob("peer-*.jsonl")) else None
    if run is None or not run.peers or any(str(index) in run.peers for index in range(settings.founders)):
        return "it has no checkpoint of any peer"
    task, dashes, own = run.command.partition(" -- ")
    same = f" --run {folder}" if settings.key and task else ""  # a folder that is not kept for a key is not used twice
    command = f"{task}{same}{dashes}{own}" or "its join line"
    return f"it is of a peer that joined: resume the run where it began, or join it again by: {command}"


def has_checkpoint(folder: Path, peers: int) -> bool:
    """Whether one of the first `peers` founding peers ("0", "1", ...) of the run in `folder` has left a checkpoint."""
    return any(checkpoint_path(folder, str(index)).exists() for index in range(peers))

"""A run that is resumed by another algorithm says so, or is refused, in one line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from boards import committed

from samovar.peers.checkpoints.checkpoint import CheckpointError
from samovar.peers.launch.join_target import JoinTarget, open_at
from samovar.peers.launch.resuming import wished
from samovar.peers.launch.run_folder import keep_settings
from samovar.peers.launch.spec import checkpoint_path
from samovar.peers.records.record_file import RecordFile
from samovar.peers.records.run import COMMAND_FILE
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.fields import SettingsError
from samovar.peers.training.stop import Stop
from samovar.protocols.members.hello import RunIs


@pytest.mark.parametrize("key", [None, "me.key"])
async def test_a_newcomer_whose_folder_holds_another_run_is_told_so_where_its_key_shows_it(
    tmp_path: Path, key: str | None
) -> None:
    """A run that was resumed is another one, and the key that a peer had in it opens no folder of before."""
    (tmp_path / "peer-0.jsonl").write_text("{}\n")
    settings = Settings(run=str(tmp_path), key=key)

    async def entered(settings: Settings) -> SimpleNamespace:
        return SimpleNamespace(id="k" * 64, abort=lambda: None)

    async def asked(endpoint: SimpleNamespace) -> RunIs:
        return RunIs(1, "this run", settings.agreed_json())

    target = cast(JoinTarget, SimpleNamespace(address="tcp://192.0.2.1:5", enter=entered, ask_run=asked))
    with pytest.raises(ValueError, match="holds a run already; ") as told:
        await open_at(target, settings, Stop(), name="anna", task=Path("task.py"))
    other_run = "with this --key it is not a peer of the run at tcp://192.0.2.1:5, as one that was resumed"
    assert (other_run in str(told.value)) == (key is not None)
    assert ("by the --key FILE that this had" in str(told.value)) == (key is None)
    assert "choose another --run" in str(told.value)


def stopped(folder: Path, protocol: str, algorithm: str) -> Path:
    """The folder of a stopped run of this algorithm."""
    keep_settings(folder, Settings(protocol=protocol, algorithm=algorithm))
    checkpoint = checkpoint_path(folder, "0")
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.touch()
    return folder


@pytest.mark.parametrize(
    ("protocol", "before", "now", "told"),
    [
        ("gossip", "d_psgd", "moshpit", ["the run goes on from the models of d_psgd by another algorithm, moshpit"]),
        ("parameter_server", "sync", "easgd", ["the run goes on from the models of sync by another algorithm, easgd"]),
        (
            "parameter_server",
            "easgd",
            "sync",
            [
                "the run goes on from the models of easgd by another algorithm, sync: from the servers' model, "
                "which the workers take in place of their own"
            ],
        ),
        ("parameter_server", "easgd:0.1", "easgd:0.2", []),
        ("parameter_server", "downpour:2", "downpour:3", []),
        ("gossip", "d_psgd", "d_psgd", []),
    ],
)
def test_a_run_that_goes_on_by_another_algorithm_says_so(
    tmp_path: Path, protocol: str, before: str, now: str, told: list[str]
) -> None:
    heard: list[str] = []
    settings = wished({"algorithm": now}, None, stopped(tmp_path, protocol, before), heard.append)
    assert settings.plain()["algorithm"] == now
    assert heard == [f"{tmp_path}: {line}" for line in told]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("sync", "hogwild"),
        ("hogwild", "sync"),
        ("hogwild", "easgd"),
        ("sync", "statistical_query"),
        ("sandblaster", "sync"),
    ],
)
def test_an_algorithm_without_the_values_of_the_checkpoints_is_refused(tmp_path: Path, before: str, now: str) -> None:
    folder = stopped(tmp_path, "parameter_server", before)
    why = f"^--algorithm must be {before} again: its checkpoints hold other values, got {now}"
    with pytest.raises(SettingsError, match=why):
        wished({"algorithm": now}, None, folder, lambda line: None)


@pytest.mark.parametrize(
    ("name", "key", "told"),
    [
        ("0", None, "it has no checkpoint of any peer"),
        ("one", None, "join it again by: samovar join ADDRESS task.py --invite ... -- --width 3"),
        ("one", "me.key", "join it again by: samovar join ADDRESS task.py --invite ... --run {} -- --width 3"),
    ],
)
def test_the_folder_of_a_peer_that_joined_tells_how_it_goes_on(
    tmp_path: Path, name: str, key: str | None, told: str
) -> None:
    keep_settings(tmp_path, Settings(protocol="gossip", peers=1, key=key))
    (tmp_path / COMMAND_FILE).write_text("samovar join ADDRESS task.py --invite ... -- --width 3\n", "utf-8")
    with RecordFile(tmp_path, name) as file:
        file.append(committed(name, 1))
    if name != "0":
        checkpoint_path(tmp_path, name).parent.mkdir()
        checkpoint_path(tmp_path, name).touch()
    with pytest.raises(CheckpointError) as refused:
        wished({}, None, tmp_path, lambda line: None)
    assert str(refused.value).startswith(f"{tmp_path}: nothing to resume, it ")
    assert str(refused.value).endswith(told.format(tmp_path))

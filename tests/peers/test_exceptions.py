"""The exceptions that a user may catch, on their way from one process to another."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

import samovar
from samovar.peers.launch.join_target import JoinFailed

RESULT = samovar.Result(loss=0.5, wall_s=1.0, exchanges=3, run="runs/mine-001", report=None)
MADE = {
    "CheckpointError": samovar.CheckpointError("no room"),
    "JoinFailed": JoinFailed("tcp://192.0.2.1:4000", "the handshake failed"),
    "JoinRefused": samovar.JoinRefused("another model"),
    "PeerLost": samovar.PeerLost("ab" * 32, "it is silent"),
    "RunFailed": samovar.RunFailed("peer 0 failed", RESULT),
    "SettingsError": samovar.SettingsError("must be at most 4, got 5", "peers", "--peers"),
    "Stopped": samovar.Stopped("stopped; go on", 130, RESULT),
    "TaskError": samovar.TaskError("mine.py: no such file"),
}


def of_pickle(error: BaseException) -> BaseException:
    found = pickle.loads(pickle.dumps(error))
    assert isinstance(found, BaseException)
    return found


def test_each_exported_exception_is_tried_here() -> None:
    exported = {name: getattr(samovar, name) for name in samovar.__all__}
    errors = {name for name, one in exported.items() if isinstance(one, type) and issubclass(one, BaseException)}
    assert errors == {*MADE}


@pytest.mark.parametrize("error", [pytest.param(error, id=name) for name, error in MADE.items()])
@pytest.mark.parametrize("way", [of_pickle, copy.copy, copy.deepcopy])
def test_an_exception_comes_out_of_another_process_as_it_was(
    error: BaseException, way: Callable[[BaseException], BaseException]
) -> None:
    found = way(error)
    assert type(found) is type(error)
    assert (str(found), repr(found), found.args, vars(found)) == (str(error), repr(error), error.args, vars(error))
    if isinstance(error, SystemExit):
        assert isinstance(found, SystemExit)
        assert found.code == error.code

"""The door: how a peer from elsewhere gets ready to enter a run."""

import os

import pytest

from samovar.peers.door import cores_for_one


def test_a_joiner_on_the_machine_of_the_run_takes_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all cores for itself it would have all peers wait, in each of their local steps."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert cores_for_one("tcp://127.0.0.1:5000", peers=3) == 2
    assert cores_for_one("tcp://127.0.0.1:5000", peers=30) == 1
    assert cores_for_one("tcp://192.0.2.7:5000", peers=3) == 8

"""The settings as keyword arguments of Python functions, for editors and type checkers.

The declarations (`common`, and the own settings of the library's conversations) define the valid values, and a test
compares these types with them.

A type checker does not know the settings of a user's own conversation: `Settings.from_json` and TOML files take these.
"""

from __future__ import annotations

import os
from typing import Literal, TypedDict

PathText = str | os.PathLike[str]


class Shared(TypedDict, total=False):
    """The settings that `samovar.train`, `samovar.simulate` and `samovar.join` take. ``help(samovar.Settings)`` tells
    each one's default and range."""

    peers: int
    protocol: str
    patience_s: float
    compute_patience_s: float | None
    quorum: int | None
    budget: str | None
    budget_per_day: str | None
    run: PathText | None
    link: str | None
    site: str | None
    report: bool
    schedule: str
    codec: str
    outer: str
    fragments: int
    inner: Literal["kept", "averaged", "reset"]
    overlap: bool
    overlap_share: float | None
    period: int | str
    period_initial: int
    period_block_s: float
    pace: Literal["equal", "own"]
    site_period: int | None
    drift: Literal["left", "corrected"]
    norm_limit: float
    algorithm: str
    topology: str
    membership: str
    servers: int
    consistency: str | None
    filters: str | None
    pull_filters: str | None
    server_update: str | None
    copies: int | None
    ranges: int


class OfProcesses(TypedDict, total=False):
    """The settings that both `samovar.train` and `samovar.join` take, and `samovar.simulate` does not: they are of
    peers that are processes."""

    average: Literal["model", "gradients"]
    threads: int
    give_up_after_s: float | None
    memory_limit: str | None
    listen: str | None
    advertise: str | None
    relay_limit: str | None
    insecure: bool
    key: PathText | None
    authorized: PathText | None
    invite_uses: int | None
    invite_for: str | None


class OfTasks(TypedDict, total=False):
    """The settings of tasks only: a training script decides these in its own code."""

    steps: int | None
    samples: int | None
    epochs: float | None
    stop: str | None
    stop_patience: int | None
    seed: int
    evaluate_every: int


class TrainSettings(Shared, OfProcesses, OfTasks, total=False):
    """The settings that `samovar.train` takes."""

    device: str
    checkpoint_every_s: float


class JoinSettings(Shared, OfProcesses, total=False):
    """The settings that `samovar.join` takes."""

    edge: bool


class SimulateSettings(Shared, OfTasks, total=False):
    """The settings that `samovar.simulate` takes."""

    step_time: str


class AllSettings(TrainSettings, JoinSettings, SimulateSettings, total=False):
    """Every setting, for `samovar.Settings`."""

    arguments: str

"""The trained model of a run, loaded into a module of PyTorch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from ..checkpoints.best import best_path
from ..checkpoints.checkpoint import CheckpointError, numbers_of
from ..checkpoints.checkpoint import load as load_checkpoint
from ..errors import one_line
from ..launch.spec import checkpoint_path
from ..records.run import natural, read_result
from ..run_settings.settings import aloud
from ..script.main_script import errors_are_lines
from ..settings.keywords import PathText
from ..task.tensors import load_tensors, tensors_of
from .result import Result

Model = TypeVar("Model", bound=nn.Module)
_PREFIX = "model/"
_NAMES_MAX = 12
"""The most peers that an error names."""


def load(
    model: Model, run: PathText | Result, peer: str | int | None = None, *, mean: bool = False, best: bool = False
) -> Model:
    """Load the weights with which a run ended into `model`, and return it.

    `run`: a run folder, or its result. At the end of a run all peers have the same parameters and floating-point
    buffers, so any peer's file will do. Only integer buffers (BatchNorm's counter) are each peer's own. `peer`: the
    peer whose file is loaded, e.g. 0; None: the peer that took the most local steps, which matters for a run that was
    stopped or lost a peer.

    With ``--protocol gossip`` each peer has a model of its own, so of several one must be chosen: `peer`, or `mean`:
    the mean of the parameters and floating-point buffers of all peers' models in the folder, but for those of peers
    that were lost and did not come back, whose models are older, unless all were; integer buffers are then those of
    `peer`. Models of peers on other machines count where their checkpoints were copied to the folder; of those that are
    not there a line on stderr tells.

    `best`: load the best evaluated model of the run in place of the last one.

    The model must have the very tensors of the file: names, shapes and types, frozen ones and buffers too. Tied weights
    are one tensor, under their first name. Nothing is changed unless all fit. Raises CheckpointError, with one line of
    text that names the first difference, or says that there is no such folder or file, or that it has several models,
    TypeError when `model` is no module or `run` neither a path nor a result, and ValueError when `best` is given with
    `peer` or `mean`. Scripts and simulations leave no files.
    """
    errors_are_lines()
    if not isinstance(model, nn.Module):
        raise TypeError(f"load() takes an nn.Module, got {model!r:.80}" + (": call it" if callable(model) else ""))
    if not isinstance(run, Result | str | os.PathLike):
        raise TypeError(f"load() takes a run folder or the result of a run, got {run!r:.80}")
    folder = run.folder if isinstance(run, Result) else Path(run)
    if best and (mean or peer is not None):
        raise ValueError("best=True loads one model, that of no peer in particular: leave out peer and mean")
    files = _present(folder, run) if mean else _files(folder)
    file = _chosen(folder, files, peer, mean=mean, best=best)
    saved = _mean_of(files, file) if mean else load_checkpoint(file).tensors
    tensors = {name.removeprefix(_PREFIX): tensor for name, tensor in saved.items() if name.startswith(_PREFIX)}
    if wrong := _difference(tensors_of(model), tensors):
        raise CheckpointError(f"{file}: this is not the run's model: {wrong}")
    load_tensors(model, tensors)
    return model


def _chosen(folder: Path, files: list[Path], peer: str | int | None, *, mean: bool, best: bool) -> Path:
    if peer is not None:
        return _of_peer(folder, str(peer))
    return _best(folder) if best else _farthest(folder, files, mean=mean)


def _present(folder: Path, run: PathText | Result) -> list[Path]:
    """The checkpoints in the folder, without those of peers that the run's result knows to be lost at its end; all
    where that leaves none, and where there is no result. The user is told of peers elsewhere whose models are not
    here."""
    files = _files(folder)
    try:
        ended = run if isinstance(run, Result) else read_result(folder)
    except (ValueError, OSError) as error:
        raise CheckpointError(one_line(error)) from None
    gone = {checkpoint_path(folder, one.peer) for one in (ended.lost if ended else ()) if not one.back}
    there = [one.peer for one in (ended.elsewhere if ended else ()) if not (one.gone or one.role)]
    lacking = [file for file in (checkpoint_path(folder, name) for name in there) if not file.exists()]
    if lacking and numbers_of(files[0]).get("own_model"):
        into = lacking[0].parent
        aloud(f"{folder}: a mean without the models of {_names(lacking)}: copy their checkpoints from there to {into}")
    return [file for file in files if file not in gone] or files


def _mean_of(files: list[Path], whose: Path) -> Mapping[str, Tensor]:
    """The tensors of the model in `whose`, those of floating point as the mean of all `files`, of which that need not
    be one. This takes a second copy of the model in float64. Raises CheckpointError when one of them lacks such a
    tensor, or has another shape of it."""
    saved = {name: tensor for name, tensor in load_checkpoint(whose).tensors.items() if name.startswith(_PREFIX)}
    sums = {name: torch.zeros_like(one, dtype=torch.float64) for name, one in saved.items() if one.is_floating_point()}
    for file in files:
        other = saved if file == whose else load_checkpoint(file).tensors
        for name, total in sums.items():
            if name not in other or other[name].shape != total.shape:
                raise CheckpointError(f"{file}: its model is another than that of {whose}: {name!r} differs")
            total += other[name]
    return saved | {name: (total / len(files)).to(saved[name].dtype) for name, total in sums.items()}


def _difference(mine: dict[str, Tensor], saved: dict[str, Tensor]) -> str:
    """The first difference of a model's tensors from the saved ones, in words; "": there is none."""
    for name, tensor in mine.items():
        if name not in saved:
            return f"the run has no {name!r} (if it is tied to another tensor there, tie it here)"
        if saved[name].shape != tensor.shape:
            return f"the run's {name!r} has the shape {tuple(saved[name].shape)}, and this one {tuple(tensor.shape)}"
        if saved[name].dtype != tensor.dtype:
            return f"the run's {name!r} is {saved[name].dtype}, and this one {tensor.dtype}"
    more = [name for name in saved if name not in mine]
    return f"this one has no {more[0]!r}" if more else ""


def _files(folder: Path) -> list[Path]:
    """The checkpoints in the folder that hold a model. Raises CheckpointError when there are none."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: there is no such run folder")
    found = sorted(checkpoint_path(folder, "").parent.glob("peer-*.safetensors"))
    if files := [*filter(_has_model, found)]:
        return files
    if found:
        held = "the checkpoints here are of servers, which hold parts of the model: give the run folder of a worker"
        raise CheckpointError(f"{folder}: {held}")
    raise CheckpointError(f"{folder}: no peer left its weights here; scripts and simulations leave none")


def _has_model(file: Path) -> bool:
    """Whether the checkpoint is that of a peer that trains: a server's holds ranges of the model alone. A damaged file
    counts as one, so that an error tells of it when it is loaded."""
    try:
        return "steps" in numbers_of(file)
    except CheckpointError:
        return True


def _of_peer(folder: Path, peer: str) -> Path:
    files, file = _files(folder), checkpoint_path(folder, peer)
    if file not in files:
        alike = "" if numbers_of(files[0]).get("own_model") else ", any of which will do"
        raise CheckpointError(f"{folder}: peer {peer} left no weights here, but these did{alike}: {_names(files)}")
    return file


def _farthest(folder: Path, files: list[Path], *, mean: bool) -> Path:
    """The one of `files` whose peer took the most local steps. Raises CheckpointError when the peers have models of
    their own, and `mean` does not put them together."""
    if len(files) == 1:
        return files[0]
    numbers = {file: numbers_of(file) for file in files}
    if not mean and any(one.get("own_model") for one in numbers.values()):
        raise CheckpointError(
            f"{folder}: each peer of this run has a model of its own: load the mean of all with mean=True, or that of "
            f"one with peer=, of {_names(files)}"
        )
    return max(files, key=lambda file: numbers[file].get("steps", 0))


def _best(folder: Path) -> Path:
    _files(folder)  # raises where a run has left no model at all
    if not (file := best_path(folder)).exists():
        raise CheckpointError(f"{folder}: no best model is here: its task names no metric by which one is the best")
    return file


def _names(files: list[Path]) -> str:
    """The names of the peers with these files, the first ones of many."""
    names = sorted((file.stem.removeprefix("peer-") for file in files), key=natural)
    return ", ".join([*names[:_NAMES_MAX], *(["..."] if len(names) > _NAMES_MAX else [])])

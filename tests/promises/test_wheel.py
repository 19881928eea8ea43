"""The wheel holds the library and nothing else, and gives `samovar` by itself; its help needs no PyTorch."""

import importlib.metadata
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from library import LAYERS, ROOT

import samovar


def test_the_version_is_the_same_wherever_it_is_told() -> None:
    assert samovar.__version__ == importlib.metadata.version("samovar")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built with what is installed, hence offline, from a clone whose folder's name is no identifier."""
    clone = tmp_path_factory.mktemp("wheel") / "my-clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__"))
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", str(clone)], cwd=clone)
    (built,) = (clone / "dist").glob("*.whl")
    return built


def run(command: list[str], cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    clone = wheel.parents[1]
    modules = [*clone.glob("*.py"), *(path for layer in LAYERS for path in (clone / layer).rglob("*.py"))]
    wanted = {f"samovar/{path.relative_to(clone).as_posix()}" for path in modules} | {
        "samovar/py.typed",
        "samovar/peers/cli/completions.json",
    }
    told = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}
    info = f"samovar-{samovar.__version__}.dist-info"
    assert set(zipfile.ZipFile(wheel).namelist()) == wanted | {f"{info}/{name}" for name in told}


def test_the_wheel_alone_gives_samovar(wheel: Path, tmp_path: Path) -> None:
    install = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--target", "here"]
    run([sys.executable, "-m", *install, str(wheel)], tmp_path)
    code = (
        "import sys; sys.path.insert(0, 'here'); import samovar, samovar.__main__; "
        "assert all(hasattr(samovar, name) for name in samovar.__all__); print(samovar.__file__)"
    )
    found = Path(run([sys.executable, "-c", code], tmp_path).splitlines()[-1])
    assert (tmp_path / found).resolve() == (tmp_path / "here/samovar/__init__.py").resolve()


def test_help_is_there_without_pytorch_which_takes_seconds_to_import(tmp_path: Path) -> None:
    code = "import sys, samovar.__main__; assert hasattr(samovar, '__version__'); print('torch' in sys.modules)"
    assert run([sys.executable, "-c", code], tmp_path).splitlines() == ["False"]
    said = run([sys.executable, "-m", "samovar", "--help"], tmp_path)
    assert all(f"  {verb} " in said for verb in ("train", "join", "simulate", "plan", "report", "keys", "doctor"))


def test_a_missing_attribute_of_samovar_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'samovar' has no attribute 'Rum'"):
        _ = samovar.Rum

"""``samovar keys``. It does without PyTorch, and without `output.exits`, which imports it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..launch.keys import KeyFileError, write_key
from .command_line import fail


@click.command()
@click.argument("name", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the public key and the files as one JSON object.")
def keys(name: Path, as_json: bool) -> int:
    """Make a key pair: NAME.key, to be kept secret, and NAME.pub, to be listed by those who should let you in.

    A peer is its key. Put the public keys that may join into a file, one a line, and start with --authorized FILE.
    """
    try:
        pair = write_key(name)
        _tell(name, pair.public, as_json=as_json)
    except (KeyFileError, OSError) as error:
        return fail(str(error))
    return 0


def _tell(name: Path, public: str, *, as_json: bool) -> None:
    files = {"public": public, "secret_file": f"{name}.key", "public_file": f"{name}.pub"}
    if as_json:
        click.echo(json.dumps(files))
    else:
        click.echo(f"public key: {public}\nsecret key: {name}.key (only you can read it)")

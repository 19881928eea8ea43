"""The command line, put together from the verbs that `peers` and `sims` define."""

import click

from . import __version__


@click.group()
@click.version_option(__version__)
def main() -> None:
    """Train one PyTorch model on many machines that differ in everything."""


if __name__ == "__main__":
    main()

"""The command line, put together from the verbs that `peers` and `sims` define."""

import sys

try:
    import click

    from . import __version__
    from .peers.cli.command_line import CommandLine, Verb
except KeyboardInterrupt:  # later ones are caught by the command line
    print("samovar: stopped", file=sys.stderr)
    sys.exit(130)

_VERBS = {
    "train": Verb(f"{__package__}.peers.cli.train", "Train a task, or run a script, with peers on this machine."),
    "join": Verb(f"{__package__}.peers.cli.join", "Take part in a run, from this machine."),
    "serve": Verb(f"{__package__}.peers.cli.serve", "Hold the model for the workers of a run, without training."),
    "invite": Verb(f"{__package__}.peers.cli.invite", "Show, end or renew the invite of a run that goes on."),
    "simulate": Verb(f"{__package__}.sims.cli", "Train a task with many peers in virtual time."),
    "plan": Verb(f"{__package__}.peers.cli.plan", "Predict how long an averaging takes on given links."),
    "report": Verb(f"{__package__}.peers.cli.report", "Show a run as one page."),
    "keys": Verb(f"{__package__}.peers.cli.keys", "Make a key pair for this machine.", light=True),
    "doctor": Verb(f"{__package__}.peers.cli.doctor", "Check whether this machine can take part in a run."),
}
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group("samovar", cls=CommandLine, verbs=_VERBS, context_settings=_CONTEXT, invoke_without_command=True)
@click.version_option(__version__, message="samovar %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Train one PyTorch model on several machines that differ.

    \b
    samovar train TASK --peers 4          four peers here; prints how others join
    samovar join ADDRESS TASK --invite …  take part from another machine
    samovar simulate TASK --peers 64      the same in virtual time, on any links
    samovar plan --size 100MB --peers 32  the fastest averaging on such links
    samovar report RUN                    loss, accuracy, bytes, time as one page
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


if __name__ == "__main__":
    main()

"""The command line, put together from the verbs that `peers` and `sims` define."""

import click

from . import __version__
from .peers.verbs.doctor import doctor
from .peers.verbs.join import join
from .peers.verbs.output import CommandLine
from .peers.verbs.plan import plan
from .peers.verbs.tools import keys, report
from .peers.verbs.train import train
from .sims.verb_simulate import simulate

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group("samovar", cls=CommandLine, context_settings=_CONTEXT, invoke_without_command=True)
@click.version_option(__version__, message="samovar %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Train one PyTorch model on many machines that differ in everything.

    \b
    samovar train TASK --peers 4          four peers on this machine; prints how others join
    samovar join ADDRESS TASK --invite …  take part from another machine
    samovar simulate TASK --peers 64      the same run in virtual time, on links of your choice
    samovar plan --size 100MB --peers 32  which averaging is the fastest on which links
    samovar report RUN                    loss, accuracy, bytes and time of a run as one page
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for verb in (train, join, simulate, plan, report, keys, doctor):
    main.add_command(verb)

if __name__ == "__main__":
    main()

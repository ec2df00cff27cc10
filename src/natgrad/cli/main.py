"""The `natgrad` command: fit, use and show models; the demo; the published experiments, repeated.

A command's module is imported when the command is called: `natgrad --help` shows the first lines of the table below.
"""

from __future__ import annotations

from importlib import import_module

import click

from natgrad._version import __version__

__all__ = ["main"]

# Each command: the module and the name of what carries it out, and the first sentence of its help (a test compares them).
COMMANDS = {
    "fit": ("fit:fit", "Fit a model to a file; see natgrad fit MODEL --help for the options of each."),
    "continue": (
        "fit:continue_",
        "Go on with a fit from where it ended, for as many steps as it has in its settings.",
    ),
    "score": ("predict:score", "How well a model predicts data it has not seen; higher is better."),
    "predict": (
        "predict:predict",
        "Predict ratings of pairs, the target of rows or documents, or what a table lacks, with standard deviations.",
    ),
    "update": (
        "fit:update",
        "Add new data to a fitted model.",
    ),
    "transform": ("predict:transform", "Shares of the topics in documents, a row for each."),
    "topics": (
        "predict:topics",
        "The words of each topic, largest topic first; with --coherence also how well they go together.",
    ),
    "recommend": (
        "predict:recommend",
        "The items that a user has not rated and would rate highest, with standard deviations.",
    ),
    "decode": (
        "predict:decode",
        "The likeliest path of hidden states, a row for each time, with the probability of the state at that time.",
    ),
    "forecast": (
        "predict:forecast",
        "What comes next in series: mean, sd and interval of each column, or the probability of each category.",
    ),
    "compare": (
        "predict:compare",
        "Put models of the same data side by side: bounds, with and without labellings, and their score on a file.",
    ),
    "report": ("predict:report", "Write the page of a model: one HTML file that needs nothing else."),
    "demo": ("experiments:demo", "Show the pitfall in miniature, then a model and its page; half a minute."),
    "reproduce": ("experiments:reproduce", "Repeat a published experiment."),
}


class LazyGroup(click.Group):
    """Commands by name; what carries one out is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(f"natgrad.cli.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their summaries, of the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="natgrad")
def main() -> None:
    """Stochastic variational inference in Bayesian networks.

    Exit codes: 0 success, 1 a mistake in files or settings, 2 a call that is not understood, 130 interrupted.
    """

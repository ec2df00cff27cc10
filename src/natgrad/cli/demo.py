"""`natgrad demo`: the pitfall in miniature, two models and a page."""

from __future__ import annotations

import click

from natgrad.cli.common import Command

__all__ = ["demo"]


@click.command(cls=Command, example="natgrad demo --plot demo.png")
@click.option("--plot", default="demo.png", show_default=True, help="Where the picture goes; demo.html is beside it.")
def demo(plot: str) -> None:
    """Show the pitfall in miniature, then two models and a page; a minute."""
    from natgrad import demo as whole

    raise SystemExit(whole.main(["--plot", plot]))

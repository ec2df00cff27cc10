"""Run the demo and repeat published experiments: `natgrad demo`, `natgrad reproduce`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from natgrad.cli.common import Command, UserError
from natgrad.data.datasets.generated import paper_ratings
from natgrad.data.io.ratings import read_ratings
from natgrad.data.ratings import Ratings
from natgrad.reproduce import paquet, paquet_table
from natgrad.reproduce.paquet_figures import draw_figure
from natgrad.reproduce.paquet_runs import prior_bound
from natgrad.threads import most_threads

__all__ = ["demo", "reproduce"]


@click.command(cls=Command, example="natgrad demo --plot demo.png")
@click.option("--plot", default="demo.png", show_default=True, help="Where the picture goes; demo.html is beside it.")
def demo(plot: str) -> None:
    """Show the pitfall in miniature, then a model and its page; half a minute."""
    from natgrad.reproduce.pitfall import show_demo

    path = Path(plot)
    if not path.absolute().parent.is_dir():
        raise UserError(f"--plot: there is no folder {path.parent}")
    raise SystemExit(show_demo(path, path.with_name("demo.html")))


@click.group()
def reproduce() -> None:
    """Repeat a published experiment."""


@reproduce.command("paquet", cls=Command, example="natgrad reproduce paquet --quick --output paquet")
@click.option(
    "--ratings", "path", type=click.Path(path_type=Path), help="Your own ratings: text (user,item,rating) or Parquet."
)
@click.option("--output", type=click.Path(path_type=Path), default=Path("paquet"), show_default=True, help="Folder.")
@click.option("--quick", is_flag=True, help="100,000 ratings, fewer settings, shorter runs: minutes.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the data and the runs.")
@click.option("--jobs", type=click.IntRange(min=1), default=None, help="Processes; all cores if not given.")
@click.option("--progress/--no-progress", default=True, help="Whether to draw a progress bar.")
def reproduce_paquet(path: Path | None, output: Path, quick: bool, seed: int, jobs: int | None, progress: bool) -> None:
    """On the Convergence of Stochastic Variational Inference in Bayesian Networks (2014): Figures 2 and 3, and a table.

    Finished runs are kept in the output folder. A call that was interrupted goes on where it was.
    """
    console = Console(highlight=False)
    begin = time.perf_counter()
    plan = paquet.QUICK if quick else paquet.FULL
    plan = plan.seeded(seed)
    ratings, source = _ratings(path, quick, seed)
    _make_folder(output)
    settings = paquet_table.notes(ratings, plan, source)
    for line in settings:
        console.print(line, soft_wrap=True)
    try:
        with _bar(console, progress) as watch:
            findings = paquet.run_experiment(ratings, plan, output / "runs", jobs=jobs or most_threads(), watch=watch)
    except KeyboardInterrupt:
        words = f"Interrupted. Finished runs are in {output / 'runs'}: the same call goes on from there."
        console.print(words, soft_wrap=True)
        raise SystemExit(130) from None
    written = _write(findings, settings, prior_bound(ratings), output)
    console.print(_shown(paquet_table.claims(findings)))
    console.print(f"{', '.join(str(p) for p in written)}; {time.perf_counter() - begin:.0f} s", soft_wrap=True)


@reproduce.command("hmm", cls=Command, example="natgrad reproduce hmm --quick --output hmm")
@click.option("--output", type=click.Path(path_type=Path), default=Path("hmm"), show_default=True, help="Folder.")
@click.option("--quick", is_flag=True, help="Shorter chains, fewer lengths, one seed: less than a minute.")
@click.option("--jobs", type=click.IntRange(min=1), default=None, help="Threads; all cores if not given.")
@click.option("--progress/--no-progress", default=True, help="Whether to draw a progress bar.")
def reproduce_hmm(output: Path, quick: bool, jobs: int | None, progress: bool) -> None:
    """Stochastic Variational Inference for Hidden Markov Models (2014): subchains with and without buffers."""
    from natgrad.reproduce import hmm

    console, begin = Console(highlight=False), time.perf_counter()
    plan = hmm.QUICK if quick else hmm.FULL
    _make_folder(output)
    with _bar(console, progress) as watch:
        runs = hmm.run_chains(plan, jobs, watch)
    table, figure = output / "table.md", hmm.draw_chains(runs, plan, output / "chains.png")
    table.write_text(hmm.chain_table(runs, plan), encoding="utf-8")
    console.print(hmm.chain_table(runs, plan), soft_wrap=True)
    console.print(f"{table}, {figure}; {time.perf_counter() - begin:.0f} s", soft_wrap=True)


def _make_folder(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output {output}: cannot be made a folder ({error.strerror})") from None


def _ratings(path: Path | None, quick: bool, seed: int) -> tuple[Ratings, str]:
    if path is None:
        sizes = (1520, 5065, 100_000) if quick else (4805, 16015, 1_000_000)
        return paper_ratings(*sizes, seed=seed), f"generated with seed {seed}"
    try:
        return read_ratings(path), path.name
    except ValueError as error:
        raise UserError(str(error)) from None


@contextmanager
def _bar(console: Console, wanted: bool) -> Iterator[paquet.Watch | None]:
    """A bar over the settings; how many runs each needs is not known before."""
    if not wanted:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("settings", total=None)
        runs = 0

        def watch(done: int, total: int, what: str) -> None:
            nonlocal runs
            runs += 1
            progress.update(task, completed=done, total=total, description=f"settings ({runs} runs, {what})")

        yield watch


def _write(findings: paquet.Findings, settings: Sequence[str], prior: float, output: Path) -> list[Path]:
    written = [output / "table.md"]
    written[0].write_text(paquet_table.markdown(findings, settings, prior), encoding="utf-8")
    for algorithm, number in ((1, 2), (2, 3)):
        for tuned in (False, True):
            start = "the largest ρ₁ = 2^−j that converges" if tuned else "ρ₁ = 1"
            title = f"Figure {number}: Alg. {algorithm} from {start}"
            name = output / f"figure{number}{'-tuned' if tuned else ''}.png"
            written.append(draw_figure(findings, algorithm, tuned=tuned, title=title, notes=settings, path=name))
    return written


def _shown(claims: Sequence[paquet_table.Claim]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for name in ("", "paper", "here"):
        table.add_column(name)
    for claim in claims:
        table.add_row(claim.what, claim.paper, claim.here, style=None if claim.same else "yellow")
    return table

"""The picture of the README: bounds of the textbook recipe and of the default step against messages read.

    python docs/figures/pitfall.py            # writes docs/assets/pitfall.png, half a minute

The data, the runs and the drawing are those of `make demo`.
"""

from pathlib import Path

from natgrad.data.datasets.generated import paper_ratings
from natgrad.reproduce import pitfall

PICTURE = Path(__file__).resolve().parents[1] / "assets" / "pitfall.png"


def main() -> None:
    data = paper_ratings(*pitfall.SIZES)
    network, runs = pitfall.factorisation(data), pitfall.plan_runs(data)
    fits = pitfall.run_all(network, runs)
    curves, best = pitfall.curves(runs, fits)
    pitfall.plot_pitfall(curves, start=pitfall.start_bound(network), reference=best, path=PICTURE)
    for run, fit in zip(runs, fits, strict=True):
        print(f"{run.name}, {run.size}, {run.option or '-'}: bound {fit.elbo:.6g}, {fit.stop}")


if __name__ == "__main__":
    main()

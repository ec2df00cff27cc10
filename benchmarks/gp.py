"""Sparse Gaussian processes against GPflow, GPyTorch and GPJax: steps, time to a density, flights, a million rows, pictures.

    python benchmarks/gp.py speed --peers FOLDER            # kin40k: seconds of a step, and held-out density over time
    python benchmarks/gp.py tables --peers FOLDER           # the default fit against SVGP at its CPU, on four tables
    python benchmarks/gp.py flights --peers FOLDER          # New York flights: RMSE and NLPD at equal time
    python benchmarks/gp.py million                          # a million rows from a memory-mapped file
    python benchmarks/gp.py pictures                         # docs/figures/gp-*.png

Every engine starts from the same kernel (RBF, a length scale for each input), noise and inducing inputs, reads the same
batches in float64 on one core, and takes one natural step on q(u) and one step of Adam on the rest; GPJax has no natural
steps, its q moves with Adam. Each runs in an environment of its own: ``--peers`` is a folder with virtual environments
gpflow, gpytorch and gpjax. Data: NATGRAD_DATA, or ../shared/data. Results: benchmarks/results/gp-*.md and .json.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("NATGRAD_DATA") or HERE.parents[1] / "shared" / "data") / "gp"
OWN = ("natgrad",)  # in this environment
PEERS = ("gpflow", "gpytorch", "gpjax")
SIZES = ((100, 256), (500, 1024))
MARKS = (0.25, 0.5, 1.0, 2.0, 4.0)
# Lengths of the natural step and rates of Adam among which rows held out of the training rows choose, after so many steps.

SVGP_RATES = (0.01, 0.03, 0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=tuple(PARTS))
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    PARTS[options.part](options)


def run_engine(name: str, start: Path, options: argparse.Namespace, *extra: str) -> dict:
    """One engine in its own environment, on core 0."""
    python = sys.executable if name in OWN else str(options.peers / name / "bin" / "python")
    command = [python, str(HERE / "peers" / "gp_common.py"), f"gp_{name}", str(start), *extra]
    if hasattr(os, "sched_setaffinity"):
        command = ["taskset", "-c", "0", *command]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def engines(options: argparse.Namespace) -> list[str]:
    return ["natgrad", *(name for name in PEERS if options.peers and (options.peers / name).is_dir())]


def kin40k() -> dict:
    table = np.loadtxt(DATA / "kin40k" / "data.csv.gz", delimiter=",")
    test = np.loadtxt(DATA / "kin40k" / "test_mask.csv.gz", delimiter=",")[:, 0] > 0.5
    table = (table - table[~test].mean(0)) / table[~test].std(0)
    return {
        "x": table[~test, :-1], "y": table[~test, -1], "x_test": table[test, :-1], "y_test": table[test, -1],
    }  # fmt: skip


def write_start(path: Path, data: dict, n_inducing: int, batch: int, rho: float = 0.1, rate: float = 0.01) -> None:
    from sklearn.cluster import kmeans_plusplus

    width = data["x"].shape[1]
    z = kmeans_plusplus(data["x"][:10_000], n_inducing, random_state=0)[0]
    np.savez(
        path, **data, z=z, lengthscale=np.full(width, np.sqrt(width)), noise=0.1, batch=batch, rho=rho, rate=rate
    )  # fmt: skip


def speed(options: argparse.Namespace) -> None:
    """Seconds of a step at two sizes; then the density over time."""
    found: dict = {"machine": platform.processor() or platform.machine(), "steps": [], "marks": []}
    data = kin40k()
    with tempfile.TemporaryDirectory() as folder:
        for n_inducing, batch in SIZES:
            start = Path(folder) / f"{n_inducing}.npz"
            write_start(start, data, n_inducing, batch)
            steps = str(options.steps if n_inducing == 100 else max(10, options.steps // 5))
            rounds = [
                {name: run_engine(name, start, options, "--steps", steps) for name in engines(options)}
                for _ in range(2)
            ]
            for name in engines(options):
                best = min((rows[name] for rows in rounds), key=lambda row: row["wall"])
                found["steps"].append({"M": n_inducing, "B": batch, **best})
        marks = [str(m) for m in MARKS]
        start = Path(folder) / "100.npz"
        for name in engines(options):
            found["marks"].append(run_engine(name, start, options, "--marks", *marks))
    publish("gp-speed", found, speed_table(found))


def speed_table(found: dict) -> str:
    lines = [
        "Sparse GP on kin40k (36 000 rows, 8 inputs), float64, one core: milliseconds of one step (median, the better of two",
        "runs), and how many times as long as natgrad's. natgrad, GPflow and GPyTorch take a natural step and a step of Adam;",
        "GPJax a step of Adam.",
        "",
        "| M | B | engine | ms | ratio | versions |",
        "|---|---|---|---|---|---|",
    ]
    for size, _ in SIZES:
        rows = [row for row in found["steps"] if row["M"] == size]
        own = next(row["wall"] for row in rows if row["engine"] == "gp_natgrad")
        for row in rows:
            versions = ", ".join(f"{k} {v}" for k, v in row["versions"].items())
            lines.append(
                f"| {size} | {row['B']} | {row['engine'][3:]} | {1e3 * row['wall']:.2f} | {row['wall'] / own:.2f} | {versions} |"
            )
    lines += [
        "", "Held-out negative log density (NLPD) after so many seconds of steps, M = 100, B = 256; all with ρ = 0.1 and",
        "Adam's rate 0.01:", "",
        "| engine | steps | " + " | ".join(f"{m:g} s" for m in MARKS) + " |", "|---" * (len(MARKS) + 2) + "|",
    ]  # fmt: skip
    for row in found["marks"]:
        values = " | ".join(f"{mark[1]:.3f}" for mark in row["marks"])
        lines.append(f"| {row['engine'][3:]} | {row['steps']} | {values} |")
    lines += ["", "`python benchmarks/gp.py speed --peers FOLDER`"]
    return "\n".join(lines) + "\n"


def generated(n: int, rough: bool, seed: int = 0) -> dict:
    """A smooth function of ten columns, five of which matter (Friedman, 1991), or a rough one of two; n rows, 2,000 to test."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n + 2_000, 2 if rough else 10))
    if rough:
        f = np.sin(30 * x[:, 0] * x[:, 1]) + np.abs(np.sin(12 * x[:, 0])) + (x[:, 1] > 0.5)
    else:
        f = 2 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 4 * (x[:, 2] - 0.5) ** 2 + 2 * x[:, 3] + x[:, 4]
    y = f + 0.2 * rng.normal(size=len(x))
    x, y = (x - x[:n].mean(0)) / x[:n].std(0), (y - y[:n].mean()) / y[:n].std()
    return {"x": x[:n], "y": y[:n], "x_test": x[n:], "y_test": y[n:]}


def some_flights(n: int = 20_000) -> dict:
    """Some flights of each side of the split, standardised."""
    held, rng = np.load(DATA / "nycflights_xy.npz"), np.random.default_rng(0)
    x, y, test = held["X"], held["y"], held["test"]
    train, test = (rng.permutation(np.flatnonzero(part))[:n] for part in (~test, test))
    x, y = (x - x[train].mean(0)) / x[train].std(0), (y - y[train].mean()) / y[train].std()
    return {"x": x[train], "y": y[train], "x_test": x[test], "y_test": y[test]}


def tables(options: argparse.Namespace) -> None:
    """`SparseGPRegressor()` as it is, and SVGP of GPyTorch for as many CPU seconds; its rate is chosen on validation rows."""
    import natgrad as ng

    found = []
    cases = {
        "smooth, 10 columns": generated(5_000, False), "rough, 2 columns": generated(10_000, True), "kin40k": kin40k(),
        "flights": some_flights(),
    }  # fmt: skip
    ng.SparseGPRegressor(n_inducing=20, max_steps=20).fit(
        cases["kin40k"]["x"][:1000], cases["kin40k"]["y"][:1000]
    )  # compiles
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "start.npz"
        for name, data in cases.items():
            begin = time.process_time()
            model = ng.SparseGPRegressor(seed=0, verbose=False).fit(data["x"], data["y"])
            took = time.process_time() - begin
            mean, sd = model.predict(data["x_test"], return_std=True)
            off = data["y_test"] - mean
            nlpd = float(np.mean(0.5 * np.log(2 * np.pi * sd**2) + 0.5 * (off / sd) ** 2))
            found.append([name, "natgrad", model.inference_, took, float(np.sqrt(np.mean(off**2))), nlpd])
            held = np.random.default_rng(0).random(len(data["y"])) < 0.1
            part = {"x": data["x"][~held], "y": data["y"][~held], "x_test": data["x"][held], "y_test": data["y"][held]}
            tried = []
            for rate in SVGP_RATES:
                write_start(start, part, 200, 512, rate=rate)
                tried.append([run_engine("gpytorch", start, options, "--marks", str(took / 4))["nlpd"], rate])
            write_start(start, data, 200, 512, rate=min(tried)[1])
            row = run_engine("gpytorch", start, options, "--marks", str(took))
            how = f"NGD and Adam of rate {min(tried)[1]:g}, {row['steps']} steps"
            found.append([name, "GPyTorch", how, took, row["rmse"], row["nlpd"]])
            print(*found[-2:], sep="\n", flush=True)
    lines = [
        "M = 200, batches of 512, one core, float64. GPyTorch has the CPU seconds that natgrad's default fit took, and its rate",
        "of Adam by validation rows.", "", "| table | engine | fit | CPU s | RMSE | NLPD |", "|---|---|---|--:|--:|--:|",
        *(f"| {a} | {b} | {c} | {t:.1f} | {rmse:.4f} | {nlpd:.4f} |" for a, b, c, t, rmse, nlpd in found),
        "", "`python benchmarks/gp.py tables --peers FOLDER`",
    ]  # fmt: skip
    publish("gp-tables", found, "\n".join(lines) + "\n")


def flights(options: argparse.Namespace) -> None:
    """Arrival delays: a linear model, boosted trees, and processes with equal time."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import LinearRegression

    import natgrad as ng
    from natgrad.models.gp import Solver

    stored = np.load(DATA / "nycflights_xy.npz")
    test, x, y = stored["test"], stored["X"], stored["y"]
    train_x, train_y, test_x, test_y = x[~test], y[~test], x[test], y[test]
    rows = []
    for name, model in (("linear", LinearRegression()), ("boosted trees", HistGradientBoostingRegressor())):
        begin = time.perf_counter()
        model.fit(train_x, train_y)
        seconds = time.perf_counter() - begin
        var = float(np.mean((train_y - model.predict(train_x)) ** 2))
        off = test_y - model.predict(test_x)
        nlpd = 0.5 * (np.log(2 * np.pi * var) + np.mean(off**2) / var)
        rows.append([name, seconds, float(np.sqrt(np.mean(off**2))), float(nlpd)])
    for likelihood in ("gaussian", "student_t"):
        begin = time.perf_counter()
        model = ng.SparseGPRegressor(
            n_inducing=200, likelihood=likelihood, solver=Solver(batch_size=1024), max_steps=100_000,
            max_seconds=options.seconds, tol=0.0,
        ).fit(train_x, train_y)  # fmt: skip
        seconds = time.perf_counter() - begin
        off = test_y - model.predict(test_x)
        nlpd = -float(np.mean(model.log_predictive_density(test_x, test_y)))
        rows.append([f"natgrad, {likelihood}, {model.n_steps_} steps", seconds, float(np.sqrt(np.mean(off**2))), nlpd])
    curves: dict = {}
    scale = (train_x.mean(0), train_x.std(0), train_y.mean(), train_y.std())
    data = {
        "x": (train_x - scale[0]) / scale[1], "y": (train_y - scale[2]) / scale[3],
        "x_test": (test_x - scale[0]) / scale[1], "y_test": (test_y - scale[2]) / scale[3],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "flights.npz"
        marks = [m for m in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0) if m <= options.seconds]
        for name in engines(options):
            write_start(start, data, 200, 1024, *((0.2, 0.04, True) if name == "natgrad" else (0.1, 0.01)))
            row = run_engine(name, start, options, "--marks", *map(str, marks))
            curves[name] = [[m[0], m[1] + float(np.log(scale[3])), m[2] * float(scale[3])] for m in row["marks"]]
            if name != "natgrad":
                rows.append([f"{name}, {row['steps']} steps", *(curves[name][-1][i] for i in (0, 2, 1))])
    found = {"rows": rows, "curves": curves, "n": len(train_y), "seconds": options.seconds}
    publish("gp-flights", found, flights_table(found))
    draw_flights(found)


def flights_table(found: dict) -> str:
    lines = [
        f"Arrival delays of New York flights in 2013 (minutes), {found['n']:,} train rows, 8 inputs; processes have 200 inducing",
        "inputs, batches of 1024, one core. Seconds of natgrad include the start and the exact pass at the end; its steps and",
        "rate are the defaults, those of the others ρ = 0.1 and 0.01.", "",
        "| model | seconds | RMSE | NLPD |", "|---|---|---|---|",
    ]  # fmt: skip
    lines += [f"| {name} | {seconds:.1f} | {rmse:.2f} | {nlpd:.4f} |" for name, seconds, rmse, nlpd in found["rows"]]
    lines += ["", "`python benchmarks/gp.py flights --peers FOLDER`"]
    return "\n".join(lines) + "\n"


def million(options: argparse.Namespace) -> None:
    """Rows from a memory-mapped file: resident memory, and the cost of a step at 10⁴, 10⁵ and 10⁶ rows."""
    import natgrad as ng
    from natgrad.models.gp import Solver

    found = []
    with tempfile.TemporaryDirectory() as folder:
        for n in (10_000, 100_000, 1_000_000):
            rng = np.random.default_rng(0)
            x = np.lib.format.open_memmap(Path(folder) / f"x{n}.npy", "w+", np.float64, (n, 8))
            y = np.lib.format.open_memmap(Path(folder) / f"y{n}.npy", "w+", np.float64, (n,))
            for begin in range(0, n, 50_000):
                part = rng.normal(size=(min(50_000, n - begin), 8))
                x[begin : begin + len(part)] = part
                y[begin : begin + len(part)] = np.sin(2 * part[:, 0]) * part[:, 1] + 0.3 * rng.normal(size=len(part))
            del x, y
            x, y = (np.load(Path(folder) / f"{c}{n}.npy", mmap_mode="r") for c in "xy")
            begin = time.perf_counter()
            solver = Solver(batch_size=256)
            model = ng.SparseGPRegressor(n_inducing=100, solver=solver, max_steps=options.steps, tol=0.0).fit(x, y)
            seconds = time.perf_counter() - begin
            times = np.diff(model.trace_["seconds"])
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            new = rng.normal(size=(5000, 8))
            rmse = float(np.sqrt(np.mean((model.predict(new) - np.sin(2 * new[:, 0]) * new[:, 1]) ** 2)))
            found.append({"n": n, "step": float(np.median(times)), "fit": seconds, "peak_gb": peak, "rmse": rmse})
    lines = [
        "Rows of 8 inputs from a memory-mapped file, M = 100, B = 256. The fit includes standardising, k-means++ and the exact",
        "pass; memory is the largest resident set of the process so far, mapped pages included.", "",
        "| rows | ms a step (median) | fit, s | peak resident, GB | RMSE to the noise-free function |", "|---|---|---|---|---|",
    ]  # fmt: skip
    lines += [
        f"| {r['n']:,} | {1e3 * r['step']:.2f} | {r['fit']:.1f} | {r['peak_gb']:.2f} | {r['rmse']:.3f} |" for r in found
    ]
    publish("gp-million", found, "\n".join([*lines, "", "`python benchmarks/gp.py million`"]) + "\n")


def pictures(options: argparse.Namespace) -> None:
    """Snelson's curve, the banana, relevances on kin40k, density against time."""
    from gp_figures import plot_boundary, plot_fit, plot_relevance

    import natgrad as ng
    from natgrad.models.gp import Solver

    folder = DATA / "snelson"
    x, y = (np.loadtxt(next(folder.glob(f"*{end}*"))) for end in ("train_inputs", "train_outputs"))
    model = ng.SparseGPRegressor(n_inducing=12, max_steps=1500).fit(x[:, None], y)
    save(plot_fit(model, x[:, None], y), "gp-snelson")
    x, y = np.loadtxt(DATA / "banana_X_train", delimiter=","), np.loadtxt(DATA / "banana_Y_train")
    classifier = ng.SparseGPClassifier(n_inducing=20, max_steps=1000).fit(x, y.astype(int))
    save(plot_boundary(classifier, x, y.astype(int)), "gp-banana")
    data = kin40k()
    model = ng.SparseGPRegressor(n_inducing=100, solver=Solver(batch_size=256), max_steps=1500, tol=0.0).fit(
        data["x"], data["y"]
    )
    save(plot_relevance(model, data["x"].std(0)), "gp-relevance")
    stored = HERE / "results" / "gp-speed.json"
    if stored.is_file():
        marks = json.loads(stored.read_text())["marks"]
        draw_density({row["engine"][3:]: row["marks"] for row in marks}, "gp-density")


def draw_density(curves: dict, name: str) -> None:
    from gp_figures import plot_density

    save(plot_density(curves), name)


def draw_flights(found: dict) -> None:
    """RMSE and NLPD against seconds; models without a curve as lines, and so is Student-t at its end."""
    from gp_figures import plot_density
    from matplotlib.figure import Figure

    axes = Figure(figsize=(10.0, 3.8), layout="constrained").subplots(1, 2)
    lines = [row for row in found["rows"] if row[0] in ("linear", "boosted trees") or "student_t" in row[0]]
    for ax, score, place in zip(axes, ("error", "density"), (2, 3), strict=True):
        levels = {row[0].rsplit(", ", 1)[0]: row[place] for row in lines}
        plot_density(found["curves"], levels=levels, score=score, ax=ax)
    axes[0].get_legend().remove()
    axes[1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)
    save(axes[0], "gp-flights")


def save(ax, name: str) -> None:
    ax.figure.savefig(HERE.parent / "docs" / "figures" / f"{name}.png", dpi=130)


def publish(name: str, found, table: str) -> None:
    print(table)
    results = HERE / "results"
    (results / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    (results / f"{name}.md").write_text(table)


PARTS = {
    "speed": speed, "tables": tables, "flights": flights, "million": million,
    "pictures": pictures,
}  # fmt: skip

if __name__ == "__main__":
    main()

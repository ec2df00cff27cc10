"""What is imported when: python tools/imports.py prints the third-party packages that each first use brings, and what it takes.

Each line is a fresh process; seconds are those of the processor, the least of three.
"""

from __future__ import annotations

import subprocess
import sys

USES = {
    "import natgrad": "import natgrad",
    "natgrad --help": "import sys; sys.argv = ['natgrad', '--help']\nfrom natgrad.cli.main import main\n"
    "try: main()\nexcept SystemExit: pass",
    "a small network": "import natgrad as ng\n"
    "ng.Network(ng.Normal('y', ng.Normal('m', 0.0, 1.0), 1.0, plate=ng.Plate('n', 3), observed=[1.0, 2.0, 3.0])).fit()",
    "GaussianMixture": "import natgrad as ng, numpy as np\nng.GaussianMixture(2).fit(np.arange(20.0)[:, None])",
    "GaussianHMM": "import natgrad as ng, numpy as np\nng.GaussianHMM(2).fit(np.arange(20.0)[:, None])",
    "LDA": "import natgrad as ng, numpy as np\nng.LDA(2).fit(np.eye(6, dtype=int))",
    "MatrixFactorization": "import natgrad as ng\n"
    "ng.MatrixFactorization(1).fit(ng.data.Ratings([0, 1, 0, 1], [0, 0, 1, 1], [1.0, 2.0, 3.0, 4.0]))",
    "SparseGPRegressor": "import natgrad as ng, numpy as np\n"
    "ng.SparseGPRegressor(max_steps=2).fit(np.arange(20.0)[:, None], np.arange(20.0))",
}  # fmt: skip
PACKAGES = (
    "numpy",
    "scipy",
    "numba",
    "jax",
    "sklearn",
    "matplotlib",
    "pandas",
    "rich",
    "click",
    "safetensors",
)
PACKAGES += ("opt_einsum", "threadpoolctl")
AFTER = f"""
import os, sys
print("@", sum(os.times()[:2]), *[p for p in {PACKAGES!r} if p in sys.modules])
"""


def measured(code: str) -> tuple[float, list[str]]:
    """Processor seconds of a process that runs the code, and the packages that it imported."""
    found = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code + AFTER], capture_output=True, text=True, check=True)
        seconds, *packages = done.stdout.rsplit("@", 1)[1].split()
        found.append((float(seconds), packages))
    return min(found)


def main() -> None:
    """Print the table."""
    print("| first use | packages | processor seconds |\n|---|---|---|")
    for use, code in USES.items():
        seconds, packages = measured(code)
        print(f"| {use} | {', '.join(packages) or 'none'} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()

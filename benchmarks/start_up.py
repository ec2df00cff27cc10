"""Measure the processor seconds of processes that import natgrad, fit a first small model, or show help: the least of several.

python benchmarks/start_up.py            # five processes of each
python benchmarks/start_up.py 20
"""

import os
import subprocess
import sys

COIN = "ng.Network(ng.Bernoulli('y', ng.Beta('p', 1.0, 1.0), plate=ng.Plate('n', 4), observed=[1, 0, 1, 1])).fit()"
COMMAND = "import sys; sys.argv = ['natgrad', {}]; from natgrad.cli.main import main; main()"
PROGRAMS = {
    "nothing": "pass",
    "NumPy": "import numpy",
    "import": "import natgrad",
    "a coin": f"import natgrad as ng; {COIN}",
    "a mixture, ready": "import natgrad as ng, numpy as np; ng.GaussianMixture(2).fit(np.arange(40.0)[:, None] % 7)",
    "natgrad --help": COMMAND.format("'--help'"),
    "natgrad fit lda --help": COMMAND.format("'fit', 'lda', '--help'"),
}  # fmt: skip


def seconds(program: str) -> float:
    """Processor seconds of one process that runs a program."""
    before = os.times()
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


if __name__ == "__main__":
    for name, program in PROGRAMS.items():
        least = min(seconds(program) for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
        print(f"{name:24s} {least:6.2f} s")

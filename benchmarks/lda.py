"""Benchmarks of LDA: one command for all parts.

    python benchmarks/lda.py quality --peers /path/to/peer/environment     # held-out scores and CPU seconds against four peers
    python benchmarks/lda.py growth                                        # documents, topics, vocabulary

Each part has its own options: ``python benchmarks/lda.py quality --help``. Peers live in an environment of their own,
``pip install scikit-learn gensim tomotopy vowpalwabbit``.
"""

import importlib
import sys

PARTS = {"quality": "lda_quality", "growth": "lda_growth"}


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
        print(__doc__)
        sys.exit(2)
    name = sys.argv.pop(1)
    importlib.import_module(PARTS[name]).main()


if __name__ == "__main__":
    main()

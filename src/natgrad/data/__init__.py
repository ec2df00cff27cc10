"""What the ready models are fed, and data to try them on.

Real text and tables that are on every machine (`load_…`), generated data with the truth that made them (`make_…`), and classic
public sets, which only `download` fetches.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natgrad.data.alleles import allele_frequencies, genotypes
    from natgrad.data.datasets.bundled import TABLES, load_docstrings, load_table
    from natgrad.data.datasets.download import DATASETS, download
    from natgrad.data.datasets.generated import make_ratings, match_rows
    from natgrad.data.io.documents import read_documents
    from natgrad.data.io.open import open_source
    from natgrad.data.io.ratings import RatingsSource, read_ratings
    from natgrad.data.ratings import Ratings
    from natgrad.data.split import train_test_split

__all__ = [
    "DATASETS",
    "TABLES",
    "Ratings",
    "RatingsSource",
    "allele_frequencies",
    "download",
    "genotypes",
    "load_docstrings",
    "load_table",
    "make_ratings",
    "match_rows",
    "open_source",
    "read_documents",
    "read_ratings",
    "train_test_split",
]

# Imported when they are asked for: whoever needs one of them does not wait for sparse matrices and optimisers.
_LAZY = {
    "TABLES": "natgrad.data.datasets.bundled",
    "load_table": "natgrad.data.datasets.bundled",
    "load_docstrings": "natgrad.data.datasets.bundled",
    "DATASETS": "natgrad.data.datasets.download",
    "download": "natgrad.data.datasets.download",
    "match_rows": "natgrad.data.datasets.generated",
    "make_ratings": "natgrad.data.datasets.generated",
    "allele_frequencies": "natgrad.data.alleles",
    "genotypes": "natgrad.data.alleles",
    "open_source": "natgrad.data.io.open",
    "Ratings": "natgrad.data.ratings",
    "RatingsSource": "natgrad.data.io.ratings",
    "read_ratings": "natgrad.data.io.ratings",
    "train_test_split": "natgrad.data.split",
    "read_documents": "natgrad.data.io.documents",
}


def __getattr__(name: str) -> Any:
    """A data set, or what reads one."""
    if name not in _LAZY:
        raise AttributeError(f"module 'natgrad.data' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)

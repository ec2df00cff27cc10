"""What the ready models are fed, and data to try them on.

Real text and tables that are on every machine (`load_…`), generated data with the truth that made them (`make_…`), and classic
public sets, which only `download` fetches.
"""

from natgrad.data.datasets.bundled import TABLES, load_table
from natgrad.data.datasets.docstrings import load_docstrings
from natgrad.data.datasets.download import DATASETS, download
from natgrad.data.datasets.generated.ancestry import make_ancestry
from natgrad.data.datasets.generated.cells import make_cells
from natgrad.data.datasets.generated.chromatin import make_chromatin
from natgrad.data.datasets.generated.flights import make_flights
from natgrad.data.datasets.generated.match import match_rows
from natgrad.data.datasets.generated.ratings import make_ratings
from natgrad.data.datasets.generated.spectra import make_spectra
from natgrad.data.genotypes import allele_frequencies, genotypes
from natgrad.data.io.open import open_source
from natgrad.data.io.ratings import RatingsSource, read_ratings

__all__ = [
    "DATASETS",
    "TABLES",
    "RatingsSource",
    "allele_frequencies",
    "download",
    "genotypes",
    "load_docstrings",
    "load_table",
    "make_ancestry",
    "make_cells",
    "make_chromatin",
    "make_flights",
    "make_ratings",
    "make_spectra",
    "match_rows",
    "open_source",
    "read_ratings",
]

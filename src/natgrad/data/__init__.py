"""What the ready models are fed, and data to try them on.

Real text and tables that are on every machine (`load_…`), generated data with the truth that made them (`make_…`), and classic
public sets, which only `download` fetches.
"""

from natgrad.data.bundled import TABLES, load_table
from natgrad.data.docstrings import load_docstrings
from natgrad.data.download import DATASETS, download
from natgrad.data.generate import make_ratings
from natgrad.data.generated.ancestry import make_ancestry
from natgrad.data.generated.cells import make_cells
from natgrad.data.generated.chromatin import make_chromatin
from natgrad.data.generated.flights import make_flights
from natgrad.data.generated.match import match_rows
from natgrad.data.generated.spectra import make_spectra
from natgrad.data.genotypes import allele_frequencies, genotypes
from natgrad.data.rating_files import read_ratings
from natgrad.data.rating_sources import RatingsSource
from natgrad.data.sources import open_source

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

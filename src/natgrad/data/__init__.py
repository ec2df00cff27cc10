"""What the ready models are fed, and data to try them on.

Generated data come with the truth that made them (`make_…`).
"""

from natgrad._lazy import attach

__all__ = [
    "Ratings",
    "RatingsSource",
    "allele_frequencies",
    "genotypes",
    "make_ratings",
    "match_rows",
    "open_source",
    "read_documents",
    "read_ratings",
    "train_test_split",
]

__getattr__, __dir__ = attach(__name__, __file__)

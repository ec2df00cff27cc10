"""Every public name of `natgrad.data` with its home."""

from natgrad.data.alleles import allele_frequencies as allele_frequencies
from natgrad.data.alleles import genotypes as genotypes
from natgrad.data.datasets.generated import make_ratings as make_ratings
from natgrad.data.datasets.generated import match_rows as match_rows
from natgrad.data.io.documents import read_documents as read_documents
from natgrad.data.io.open import open_source as open_source
from natgrad.data.io.ratings import RatingsSource as RatingsSource
from natgrad.data.io.ratings import read_ratings as read_ratings
from natgrad.data.ratings import Ratings as Ratings
from natgrad.data.split import train_test_split as train_test_split

"""A corpus with large counts in; one with fewer tokens in the same shares, where only a start is sought, out.

A sweep of a sampler takes as long as there are tokens, a pass as long as there are words of documents. Counts of thousands, as of
reads of genes or of a text that was repeated, would make a start take a thousand times as long as what starts there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from natgrad.data.corpus import Corpus

__all__ = ["repeated", "thinned"]

# The largest mean count of an entry that is sampled as it is; text has 1.2 to 2.
MOST_REPEATED = 8.0


def repeated(corpus: Corpus) -> float:
    """What counts are to be divided by for a start; 1 if they are small.

    Examples
    --------
    >>> from natgrad.data.corpus import as_corpus
    >>> repeated(as_corpus(np.array([[1, 2]]))), repeated(as_corpus(np.array([[1000, 3000]])))
    (1.0, 250.0)
    """
    return max(1.0, float(corpus.n_tokens / (MOST_REPEATED * max(1, len(corpus.words)))))


def thinned(corpus: Corpus) -> Corpus:
    """The corpus, or one whose mean count is `MOST_REPEATED`, in whole numbers; no word of a document is lost."""
    by = repeated(corpus)
    return corpus if by == 1.0 else replace(corpus, counts=np.maximum(np.rint(corpus.counts / by), 1.0))

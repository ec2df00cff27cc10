"""Topic models beyond LDA, `ng.topics`: each is a declared network with a thin estimator."""

from natgrad.topics.authors import AuthorTopics
from natgrad.topics.correlated import CorrelatedTopics
from natgrad.topics.dynamic import DynamicTopics
from natgrad.topics.supervised import SupervisedLDA

__all__ = ["AuthorTopics", "CorrelatedTopics", "DynamicTopics", "SupervisedLDA"]

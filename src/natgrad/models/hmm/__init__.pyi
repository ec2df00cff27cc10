"""Every public name of `natgrad.models.hmm` with its home."""

from natgrad.models.hmm.expansions import Explicit as Explicit
from natgrad.models.hmm.expansions import NegativeBinomial as NegativeBinomial
from natgrad.models.hmm.general import HMM as HMM
from natgrad.models.hmm.kinds import Autoregressive as Autoregressive
from natgrad.models.hmm.kinds import Bernoulli as Bernoulli
from natgrad.models.hmm.kinds import Categorical as Categorical
from natgrad.models.hmm.kinds import Gaussian as Gaussian
from natgrad.models.hmm.kinds import Mixture as Mixture
from natgrad.models.hmm.kinds import Poisson as Poisson
from natgrad.models.hmm.kinds import StudentT as StudentT
from natgrad.models.hmm.parts import Subchains as Subchains
from natgrad.models.hmm.priors import Transitions as Transitions

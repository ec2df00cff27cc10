"""Every public name of `natgrad.models.gp` with its home."""

from natgrad.models.gp.settings import Solver as Solver
from natgrad.models.gp.state_space import StateSpaceGP as StateSpaceGP
from natgrad.models.gp.vecchia import VecchiaGPRegressor as VecchiaGPRegressor

"""How a fit runs: methods, step sizes, callbacks, executors. The engine behind them knows problems, never models.

The names below are public, as ``natgrad.inference.PerNode``; the modules are not.
"""

from natgrad.inference.auto import Auto
from natgrad.inference.callbacks import HeldOut, Progress
from natgrad.inference.executors import Dask
from natgrad.inference.methods import SVI, VB, Children, GlobalBatch
from natgrad.inference.options import LocalOptions
from natgrad.inference.step_sizes import Constant, HoldThenDecay, PerNode, RobbinsMonro
from natgrad.inference.trace import Reason, Stop

__all__ = [
    "SVI",
    "VB",
    "Auto",
    "Children",
    "Constant",
    "Dask",
    "GlobalBatch",
    "HeldOut",
    "HoldThenDecay",
    "LocalOptions",
    "PerNode",
    "Progress",
    "Reason",
    "RobbinsMonro",
    "Stop",
]

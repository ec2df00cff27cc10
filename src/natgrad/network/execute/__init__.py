"""Compute sweeps, targets and bounds of a Plan."""

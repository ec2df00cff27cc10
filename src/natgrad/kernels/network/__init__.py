"""Sweeps of Gibbs sampling of networks whose polynomial is written out in numbers."""

"""Posterior draws of a network: Gibbs sampling from the declaration that was fitted."""

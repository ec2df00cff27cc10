"""Compiled loops of hidden Markov models."""

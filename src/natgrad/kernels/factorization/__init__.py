"""Compiled loops of matrix factorisation."""

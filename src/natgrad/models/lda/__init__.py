"""Latent Dirichlet allocation."""

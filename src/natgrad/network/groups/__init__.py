"""Declared networks with independent groups: which ones, and steps that read some of them."""

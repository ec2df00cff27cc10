"""Bind declarations with columns to tables."""

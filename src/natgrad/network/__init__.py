"""Declare networks of plates, nodes and expressions, compile and fit them."""

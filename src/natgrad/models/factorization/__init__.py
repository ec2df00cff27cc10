"""Matrix factorisation."""

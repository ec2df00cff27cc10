"""How expectations move when the log joint is tilted: covariances that a factorised q has lost."""

"""A Plan in, sweeps, targets and bounds out."""

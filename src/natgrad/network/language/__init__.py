"""What users write: nodes, plates, expressions; each says its log density as a polynomial of moments."""

"""What a fitted network answers: factors, predictions, diagnostics, files."""

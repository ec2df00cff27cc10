"""Pictures of the report."""

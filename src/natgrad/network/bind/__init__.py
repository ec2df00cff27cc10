"""Declarations with columns meet tables: whatever holds rows in, concrete nodes of that many rows out."""

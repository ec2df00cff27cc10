"""Compile a declaration to a Plan: terms, blocks, who reads whom, what can be solved together."""

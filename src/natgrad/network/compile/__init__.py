"""A declaration in, a Plan out: terms, blocks, who reads whom, what can be solved together."""

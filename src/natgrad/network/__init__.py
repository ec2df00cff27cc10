"""The language and its compiler: plates, nodes and expressions in; a Problem with targets and bounds out."""

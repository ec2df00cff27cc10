"""For people: pictures of what a fit did."""

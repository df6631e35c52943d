"""How to ask: everything that is decided before data is touched."""

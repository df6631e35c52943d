"""Planning: every decision made before data is touched."""

"""Estimates of tables: non-negative, consistent and shrunk, so far better than unbiased on sparse data."""

"""Estimates of tables: non-negative, consistent, and on sparse data far closer to the truth."""

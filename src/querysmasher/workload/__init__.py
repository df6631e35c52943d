"""Queries: families, groups of them on attribute sets, and workloads."""

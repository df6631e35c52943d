"""Comparison of mechanisms on one workload."""

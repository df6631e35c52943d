"""Reproduces the paper's tables for planning and measures time and memory: ``python -m benchmarks.run``."""

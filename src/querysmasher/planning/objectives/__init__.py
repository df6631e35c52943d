"""Objectives: the same planner with other weights, and budgets to match."""

"""Objectives other than the mean square error: the same planner with other weights, and budgets to match."""

OBJECTIVES = ("mean", "worst")
"""What a plan can minimise."""

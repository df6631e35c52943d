"""Objectives other than the mean square error: the same planner with other weights, and budgets to match."""

OBJECTIVES = ("mean", "worst")
"""What a plan can minimise."""

LEAST = "least"
"""The objective of a plan that meets its targets at the least cost."""

INSUFFICIENT = ("refuse", "scale")
"""What to do if a budget does not suffice for the targets."""

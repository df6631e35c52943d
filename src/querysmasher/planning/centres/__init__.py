"""The search for the centres that minimise a workload's total error."""

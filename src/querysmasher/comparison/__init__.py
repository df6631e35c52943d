"""Mechanisms side by side: what each would make of a workload."""

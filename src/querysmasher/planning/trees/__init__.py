"""Hierarchies of up to a million values, planned on the nodes of their tree."""

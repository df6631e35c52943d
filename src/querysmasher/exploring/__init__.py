"""Explores a table in phases: each is planned from the noisy results of those before it."""

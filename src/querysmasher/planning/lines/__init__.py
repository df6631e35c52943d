"""Attributes of very many values: strategies without matrices, and other attributes beside them."""

"""Attributes of very many values: strategies without matrices, also beside other attributes."""

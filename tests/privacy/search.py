"""Looks for secret numbers in texts and arrays."""

import re

import numpy as np

NUMBER = re.compile(r"(?<![0-9A-Za-z.])([0-9]+)(?:\.0+)?(?![0-9A-Za-z]|\.[0-9])")


def shown(secrets, text):
    """The secrets that a text holds as numbers of their own, with or without separators of thousands."""
    text = text.replace(",", "").replace("_", "") + " " + text
    return {int(digits) for digits in NUMBER.findall(text) if int(digits) in secrets}


def held(secrets, numbers):
    """The secrets among numbers."""
    return {int(x) for x in np.ravel(numbers) if float(x) in secrets}

"""Ranks and parts of rows of integers and fractions, in exact arithmetic."""

import math
from fractions import Fraction

import numpy as np

PRIMES = (2**31 - 1, 2**31 - 19)  # products of two remainders fit into 64 bits


def exact(number):
    """The same number, exactly: an integer if it is one (which is quicker), else a fraction."""
    if isinstance(number, int):
        return number
    whole = isinstance(number, float) and number.is_integer()
    return int(number) if whole else Fraction(number)


def exact_rank(rows):
    """The rank of rows of integers or fractions, computed modulo two large primes.

    It is never above the true rank, and below it only if for both primes a minor that is not zero happens to
    be a multiple of the prime: about one case in 10^18.
    """
    whole = []
    for row in rows:
        numbers = [exact(x) for x in row]
        common = math.lcm(*(x.denominator for x in numbers))
        whole.append([x.numerator * (common // x.denominator) for x in numbers])
    return max(rank_modulo(whole, prime) for prime in PRIMES)


def rank_modulo(rows, prime):
    """The rank of rows of integers over the field of a prime number of elements."""
    rest = np.array([[x % prime for x in row] for row in rows], dtype=np.int64)
    rank = 0
    while rest.size:
        places = np.flatnonzero(rest[:, 0])
        if len(places):
            pivot = rest[places[0]] * pow(int(rest[places[0], 0]), -1, prime) % prime
            rest = np.delete(rest, places[0], axis=0)
            rest = (rest - np.multiply.outer(rest[:, 0], pivot)) % prime
            rest = rest[rest.any(axis=1)]
            rank += 1
        rest = rest[:, 1:]
    return rank


def exact_part(matrix, shape, centres, kept):
    """What queries leave on the axes `kept`, times Π Σk over all axes: integers if the queries are."""
    tensor = np.array([[exact(x) for x in row] for row in matrix], dtype=object)
    tensor = tensor.reshape(-1, *shape)
    for axis in reversed(range(len(shape))):
        k = np.array([int(x) for x in centres[axis]], dtype=object)
        mean = np.tensordot(tensor, k, axes=(axis + 1, 0))
        tensor = sum(k) * tensor - np.expand_dims(mean, axis + 1) if axis in kept else mean
    return tensor.reshape(len(matrix), -1).tolist()

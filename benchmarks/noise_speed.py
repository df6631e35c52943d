"""How many integers a second the samplers draw, on one core: `python benchmarks/noise_speed.py`."""

import time
from fractions import Fraction

from querysmasher.privacy.noise import DiscreteGaussian, OpenDPDiscreteGaussian, RoundedGaussian


def speed(source, variance, size):
    """The best of three runs, in samples per second."""
    best = 0.0
    for _ in range(3):
        start = time.perf_counter()
        source.draw(variance, size)
        best = max(best, size / (time.perf_counter() - start))
    return best


def main():
    contenders = [
        ("rounded", RoundedGaussian(), 1_000_000),
        ("discrete", DiscreteGaussian(), 1_000_000),
        ("rounded, seeded", RoundedGaussian(seed=1), 1_000_000),
        ("discrete, seeded", DiscreteGaussian(seed=1), 1_000_000),
        ("OpenDP", OpenDPDiscreteGaussian(), 10_000),
    ]
    print(f"{'variance':>10}" + "".join(f"{name:>18}" for name, _, _ in contenders) + "   samples/s")
    for variance in map(Fraction, (1, 100, 10**4, 10**8, 10**16)):
        speeds = (speed(source, variance, size) for _, source, size in contenders)
        print(f"{float(variance):>10.0e}" + "".join(f"{s:>18,.0f}" for s in speeds))


if __name__ == "__main__":
    main()

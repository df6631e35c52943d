"""The demonstration, also as `querysmasher demo`. Run it with `make demo`."""

from __future__ import annotations

from querysmasher.demo import run_demo

if __name__ == "__main__":
    run_demo()

"""The command `querysmasher`: spec files in, plans, releases and answers out.

One file per command. Commands import what they need when they run, so that `--help` is there at once.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from querysmasher.cli.app import app

    app(prog_name="querysmasher")

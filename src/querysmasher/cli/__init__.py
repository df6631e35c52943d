"""The command `querysmasher`: spec files in, plans, releases and answers out.

One file per command. Commands import what they need when they run, so that `--help` is there at once.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line."""
    try:
        signal.signal(
            signal.SIGTERM, signal.default_int_handler
        )  # whoever ends us leaves nothing half-written
        from querysmasher.cli.app import app

        app(prog_name="querysmasher")
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(130)

"""The command `querysmasher`: makes plans, releases and answers from spec files.

One file per command. Commands import what they need when they run, so that `--help` starts fast.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line."""
    try:
        signal.signal(
            signal.SIGTERM, signal.default_int_handler
        )  # no partial output, however the process is terminated
        from querysmasher.cli.app import app

        app(prog_name="querysmasher")
    except KeyboardInterrupt:  # before a command starts
        sys.exit(130)

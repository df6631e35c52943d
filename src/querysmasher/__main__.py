"""`python -m querysmasher` is the command `querysmasher`."""

import signal
import sys


def main() -> None:
    """Run the command line; an interruption, however early, leaves no partial output."""
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        from querysmasher.cli.app import app  # noqa: PLC0415 - an interruption may come while it loads

        app(prog_name="querysmasher")
    except KeyboardInterrupt:  # before a command starts
        sys.exit(130)


if __name__ == "__main__":
    main()

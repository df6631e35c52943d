"""`python -m querysmasher.studio.command` is the command, which tells its progress on standard error."""

import sys

from querysmasher.cli.app import app
from querysmasher.progress import LISTENERS

MARK = "progress: "
"""How a line about progress begins."""


def main() -> None:
    """Run the command line."""
    LISTENERS.append(lambda text: print(f"{MARK}{text}", file=sys.stderr, flush=True))  # noqa: T201
    app(prog_name="querysmasher")


if __name__ == "__main__":
    main()

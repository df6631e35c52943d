"""`querysmasher studio`: a page in the browser, from a codebook to a publication."""

from __future__ import annotations

import webbrowser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from querysmasher.cli.output import print_json, say
from querysmasher.endings import check_ending
from querysmasher.errors import MissingExtraError

PACKAGES = {
    "starlette": "starlette",
    "uvicorn": "uvicorn",
    "jinja2": "jinja2",
    "tomlkit": "tomlkit",
    "python_multipart": "python-multipart",
}
"""The modules that Studio needs, and their packages, which an extra installs."""


def studio(spec: Path, port: int, browser: bool, as_json: bool) -> None:
    """Serve a spec file in the browser until interrupted."""
    check_ending(spec, (".toml",))
    missing = [package for module, package in PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise MissingExtraError(f"Studio needs {', '.join(missing)}: pip install 'querysmasher[studio]'")

    def opened(address: str) -> None:
        if as_json:
            print_json({"address": address})
        else:
            say(f"Studio is open at {address}")
            say("Only this machine reaches it. It ends with Ctrl-C; what you changed is in the spec file.")
        if browser:
            webbrowser.open(address)

    import_module("querysmasher.studio.app").run(spec, port, opened)

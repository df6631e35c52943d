# ruff: noqa: A005 - the folder mirrors the package

"""Spec files: a whole release, from the schema to the output folder, in one TOML file.

`read_spec` reads one, `read_codebook` reads a schema from a codebook, and `template` returns a first file.
"""

from querysmasher.spec.schemas import read_codebook
from querysmasher.spec.spec import Spec, read_spec, template

__all__ = ["Spec", "read_codebook", "read_spec", "template"]

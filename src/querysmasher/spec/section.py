"""What all sections of a spec file have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

positive = Field(default=1.0, description="a positive number", gt=0, allow_inf_nan=False)
amount = Field(default=None, description="a positive number", gt=0, allow_inf_nan=False)
PATH = r"\A[^\x00]+\z"
path = Field(default=None, description="a path as a string", pattern=PATH)
words = Field(default=None, description="a non-empty string", min_length=1)


class Section(BaseModel):
    """A table of a spec file: unknown keys and values of other types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

"""The one configuration that all models share: immutable, and nothing unknown is let through in silence."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A frozen model that refuses unknown fields: what users write."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        serialize_by_alias=True,
        validate_by_name=True,
        validate_by_alias=True,
    )


class StoredModel(BaseModel):
    """A frozen model that ignores unknown fields: what a file holds that a newer simrun may have written."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        serialize_by_alias=True,
        validate_by_name=True,
        validate_by_alias=True,
    )

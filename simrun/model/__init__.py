"""The words of the domain as pydantic models: what users write, what records say. Pure: no files, no clock."""

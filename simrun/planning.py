"""Plans of the tasks of a run: from their types and from what earlier attempts used. Pure."""

"""Follows runs from submission to their end."""

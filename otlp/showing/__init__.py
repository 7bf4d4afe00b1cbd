"""Notebook representations of objects: HTML tables and bars."""

"""Shared by tests: WITHOUT."""

from __future__ import annotations

# Python does not find the package, as if it were not installed.
WITHOUT = """
import importlib.machinery, sys

class Without(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name.partition(".")[0] == {package!r}
        return None if hidden else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Without
"""

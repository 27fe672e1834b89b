"""Shared by tests: EVIL."""

from __future__ import annotations

EVIL = '<script>alert(1)</script><img src=x onerror=alert(2)> "\'&{{ 7*7 }}'

"""What the two scripts share: filler text and statistics, pure functions, standard library only.

The code is in `request_timing/`; the names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import Any

FILLER = ("common_prefix", "cut_text", "filler", "fit_text", "nonces")
STATISTICS = ("Comparison", "Spread", "compare", "detectable_ratio", "middle", "ratio", "spread")
LINES = ("Line", "fit_line", "typical_line", "upward_curve")
__all__ = [*FILLER, *LINES, *STATISTICS]


def __getattr__(name: str) -> Any:
    rooms = {"request_timing.prompts.filler": FILLER, "request_timing.stats.compare": STATISTICS,
             "request_timing.stats.fits": LINES}
    for room, names in rooms.items():
        if name in names:
            return getattr(importlib.import_module(room), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

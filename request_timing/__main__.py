"""Everything that works on saved files: plot, report, compare, as commands of one program."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {"plot": "request_timing.pictures.plot", "report": "request_timing.report.page",
            "compare": "request_timing.report.compare"}


def main(argv: list[str] | None = None) -> int:
    """Run the command that the first word names. Returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] not in COMMANDS:
        print(f"request-timing: expected one of {', '.join(COMMANDS)}, found "
              f"{words[0] if words else 'none'}", file=sys.stderr)
        return 2
    status: int = importlib.import_module(COMMANDS[words[0]]).main(words[1:])
    return status


if __name__ == "__main__":
    sys.exit(main())

"""The one exception that ends a run before it starts, and what keeps a message on one line."""

from __future__ import annotations

FOREIGN_CHARS = 300


class UserError(Exception):
    """The command line or the set-up is wrong: one line for the user, exit status 2.

    The message says what was expected, what was found, and what to do.
    """


def one_line(value: object, *, limit: int = FOREIGN_CHARS) -> str:
    """Any text from elsewhere as one printable line of at most `limit` characters."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    text = " ".join(text.split())
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text if len(text) <= limit else text[: limit - 3] + "..."

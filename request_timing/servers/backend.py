"""What the experiments need of a server: messages in, events out, and a count of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from request_timing.servers.timing import Event

USER, ASSISTANT = "user", "assistant"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt; a backend without roles joins the texts as they are."""

    role: str
    text: str


Prompt = tuple[Message, ...]


class Backend(Protocol):
    """What the experiments need of a server."""

    head_tokens: int  # what the server puts before every prompt (BOS, chat template)
    interleave_arms: bool  # alternate the arms turn by turn, or run them as blocks
    counts_exactly: bool  # whether count_tokens is the server's own count

    def stream(self, prompt: Prompt, output_tokens: int) -> Iterator[Event]:
        """Send one request and yield what happens."""

    def count_tokens(self, text: str) -> int:
        """Tokens of a prompt of this one text, all that the server adds included."""

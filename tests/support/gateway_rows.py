"""What each gateway does to a measurement: one table, from which the README's is rendered.

`test_gateways.py` holds each row to what a run through the real gateway showed, and the README
to this table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

AS_WRITTEN, IN_BURSTS = "as written", "in bursts"
REPORTED, ZERO, NOT_REPORTED = "reported", "always 0", "not reported"
REFUSED = "refused, in one line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a run through a gateway shows.

    pieces: whether the pieces of an answer come as they are written; ttft: the same for the first;
    cached: whether cached tokens are reported; append, prepend: the verdicts of api_timing.py;
    local: those of local_cache.py, append's and prepend's, or that it refused.
    """

    pieces: str = AS_WRITTEN
    cached: str = REPORTED
    append: str = "hit"
    prepend: str = "no_hit"
    local: str = "hit, no_hit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One gateway: its settings, and what is claimed of it.

    inner: the directives of a second nginx between the first and the model; routing: None for one
    server, else how nginx chooses between two.
    """

    name: str
    what: str
    kind: str = "nginx"
    directives: str = ""
    inner: str | None = None
    routing: str | None = None
    seen: Seen = field(default_factory=Seen)


GZIP = "gzip on; gzip_types text/event-stream; gzip_proxied any;"
# Debian's nginx asks upstream by HTTP/1.0 unless told otherwise; said here, newer ones do too.
OLD = "proxy_http_version 1.0;"
ROWS = (
    Row(name="direct", what="nothing", kind="none"),
    Row(name="nginx", what="nginx, buffering on (its default)", directives=OLD),
    Row(name="unbuffered", what="nginx, `proxy_buffering off`",
        directives=f"{OLD} proxy_buffering off;"),
    Row(name="gzip", what="nginx, gzip on for event streams", directives=f"{OLD} {GZIP}"),
    Row(name="chain", what="two nginx, one behind the other, both as they come",
        directives=OLD, inner=OLD, seen=Seen(pieces=IN_BURSTS)),
    Row(name="chain-unbuffered", what="the same, `proxy_buffering off` in the outer one",
        directives=f"{OLD} proxy_buffering off;", inner=OLD),
    Row(name="chain-accel", what="the same, `X-Accel-Buffering: no` from the inner one",
        directives=OLD, inner=f"{OLD} add_header X-Accel-Buffering no;"),
    Row(name="two", what="nginx, two llama-servers in turn", directives=OLD, routing="",
        seen=Seen(append="hit from turn 3")),
    Row(name="sticky", what="nginx, two llama-servers, `ip_hash`", directives=OLD,
        routing="ip_hash;"),
    Row(name="litellm", what="LiteLLM's proxy", kind="litellm", seen=Seen(local=REFUSED)),
)


def markdown() -> str:
    """The README's table."""
    lines = ["| between you and the model | pieces come | TTFT | cached tokens "
             "| append | prepend | `local_cache.py`: append, prepend |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for row in ROWS:
        seen = row.seen
        ttft = "the first piece's" if seen.pieces == AS_WRITTEN else "holds part of the answer"
        local = ", ".join(map(_code, seen.local.split(", "))) if seen.local != REFUSED else REFUSED
        lines.append(f"| {row.what} | {seen.pieces} | {ttft} | {seen.cached} "
                     f"| {_code(seen.append)} | {_code(seen.prepend)} | {local} |")
    return "\n".join(lines)


def _code(verdict: str) -> str:
    code, _, rest = verdict.partition(" ")
    return f"`{code}`{' ' if rest else ''}{rest}"


if __name__ == "__main__":
    print(markdown())

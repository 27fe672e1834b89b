"""A request body as one line of a .jsonl, without its keys; pure functions, no I/O.

What is left is what was sent: the bytes are not parsed and written again, so that the order of
keys, the spacing and the form of every number survive. Two things alone are changed. A line end
between tokens becomes a space (JSON allows none inside a string), so that every byte keeps its
offset. A key becomes `***`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterable
from typing import NamedTuple, NoReturn

MASK = b"***"
# Servers that need no key are sent "none", "EMPTY", "dummy" or "x": no secret, and an ordinary
# word of a prompt. The shortest that is taken for a key has so many characters.
KEY_CHARS = 6
# Of cookies only what can be a session's: their other values are ordinary words (lang=english).
COOKIE_CHARS = 16
_NEVER_ESCAPED = re.compile(r"[\w.-]+", re.ASCII)

PREFIX_CHARS = 40  # of a field's name, such as AZURE_OPENAI_API_KEY, in front of what is known
_NAME = (rf"[\w-]{{0,{PREFIX_CHARS}}}?(?:api[_-]?(?:key|token)|subscription[_-]?key"
         r"|secret[_-]?(?:access[_-]?)?key|(?:private|signing|encryption|account|ssh)[_-]?key"
         r"|secret|password|passwd|passphrase|authorization"
         r"|(?:access|auth|authorization|bearer|refresh|session|security|ad|id|oauth|jwt|bot"
         r"|personal|service|client|github|gitlab|hf|huggingface|slack|npm|pypi)[_-]?token)"
         r"s?(?:[_-]?\d{1,3})?")
_LAST_WORDS = (b"key", b"secret", b"token", b"authorization", b"password", b"passwd",
               b"passphrase")
_NAME_END = re.compile(rb's?(?:[_-]?\d{1,3})?\\*"')
# A field that holds a key, at any depth of JSON inside JSON strings: its quotes are all escaped
# by the same run of backslashes. Only a string, or a list of them, is a key: {"api_key": {"type":
# "string"}} is the schema of a tool, and a part of the prompt.
_VALUE = r'(?P=quote)(?:[^"\\]|\\+[^"\\]|(?!(?P=quote))\\+")+(?P=quote)'
_FIELD = re.compile(
    rf'(?P<quote>\\*"){_NAME}(?P=quote)\s*:\s*'
    rf'(?P<values>{_VALUE}|\[\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\])'.encode(), re.IGNORECASE)
# A word of the name of a header or a query parameter whose value is a secret.
_SECRET_WORDS = {"key", "keys", "apikey", "apikeys", "secret", "secrets", "token", "tokens", "auth",
                 "authorization", "bearer", "password", "passwd", "pwd", "signature", "sig", "jwt",
                 "pat", "credential", "credentials", "cookie"}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# `Token token="…"`, `AWS4-HMAC-SHA256 Credential=…, Signature=…`
_PARAMETER = re.compile(r'([\w-]+)\s*=\s*(?:"([^"]*)"|([^\s",;]+))')


class Line(NamedTuple):
    """One line of a recording with its line end, and whether a key in it was replaced."""

    data: bytes
    had_key: bool


class NotRecorded(ValueError):
    """A body that is no line of a recording; the message says why, in a few words."""


def secrets_of(fields: Iterable[tuple[str, str]]) -> set[str]:
    """The secrets in the headers and query parameters of a request, given as name and value.

    Of "Bearer abcdef" what follows the scheme, and its parameters that hold one; of Basic
    credentials the password too, or the user where that is the key; of cookies each long value.
    What is shorter than KEY_CHARS is no secret.
    """
    found: set[str] = set()
    for name, value in fields:
        if not _is_secret(name):
            continue
        if "cookie" in name.lower():
            values = [part.partition("=")[2].strip().strip('"') for part in value.split(";")]
            found |= {value for value in values if len(value) >= COOKIE_CHARS}
            continue
        scheme, *rest = re.split(r"[\s,]+", value.strip(), maxsplit=1)
        credentials = rest[0] if rest else ""
        if scheme.lower() not in ("bearer", "basic") or credentials:
            found.add(credentials or scheme)
        found |= {quoted or plain for key, quoted, plain in _PARAMETER.findall(credentials)
                  if _is_secret(key)}
        if scheme.lower() == "basic":
            found |= set(_of_basic(credentials))
    # A header in Latin-1 comes with its bytes escaped; a body has the same letters in UTF-8.
    found |= {secret.encode("utf-8", "surrogateescape").decode("latin-1") for secret in found
              if not secret.isprintable()}
    return {secret for secret in found if len(secret) >= KEY_CHARS}


def _is_secret(name: str) -> bool:
    """Whether a header or parameter of this name holds a secret: X-Api-Secret, apiToken, sig."""
    return any(word.lower() in _SECRET_WORDS for word in _WORD.findall(name))


def _of_basic(credentials: str) -> Iterable[str]:
    """The password, or what is sent in its place: some take the key as the name of the user.

    A user's name beside a password is a word of prompts, unless it is as long as a key.
    """
    try:
        user, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return
    yield password
    if len(password) < KEY_CHARS or len(user) >= COOKIE_CHARS:
        yield user


def masked(text: str, secrets: Collection[str]) -> str:
    """`text` with every secret, plain or as a JSON encoder may escape it, replaced by `***`."""
    data = _masked(text.encode("utf-8", "surrogateescape"), secrets)
    return data.decode("utf-8", "surrogateescape")


def _masked(data: bytes, secrets: Collection[str]) -> bytes:
    for secret in sorted(secrets, key=len, reverse=True):  # one may be a part of another
        if _NEVER_ESCAPED.fullmatch(secret):
            data = data.replace(secret.encode(), MASK)
        else:
            data = re.sub(b"".join(map(_escapable, secret)), MASK, data)
    return data


def _escapable(character: str) -> bytes:
    """A pattern of one character: encoders write `/` as `\\/`, and `+` or `=` as `\\u002b`."""
    if _NEVER_ESCAPED.fullmatch(character):
        return re.escape(character.encode())
    units = character.encode("utf-16-be", "surrogatepass").hex()
    escaped = "".join(rf"\\+u(?i:{units[n:n + 4]})" for n in range(0, len(units), 4))
    return rb"(?:\\*%s|%s)" % (
        re.escape(character.encode("utf-8", "surrogateescape")), escaped.encode())


def _without_key_fields(body: bytes) -> bytes:
    """The body with the value of each field that holds a key replaced.

    The words that such names end with are looked for first: on a prompt without them this takes
    a tenth of what the pattern takes.
    """
    lower = body.lower()
    values: set[tuple[int, int]] = set()
    for word in _LAST_WORDS:
        at = lower.find(word)
        while at >= 0:
            end = at + len(word)
            if _NAME_END.match(lower, end):
                start = lower.rfind(b'"', max(0, at - 2 * PREFIX_CHARS), at)
                while start > 0 and lower[start - 1:start] == b"\\":
                    start -= 1
                if start >= 0 and (found := _FIELD.match(body, start)):
                    values |= set(_strings(body, found))
            at = lower.find(word, end)
    for first, last in sorted(values, reverse=True):
        body = body[:first] + MASK + body[last:]
    return body


def _strings(body: bytes, found: re.Match[bytes]) -> Iterable[tuple[int, int]]:
    """Where the strings of a field's value begin and end, without their quotes."""
    quote = re.escape(found["quote"])
    one = re.compile(rb'%s((?:[^"\\]|\\+[^"\\]|(?!%s)\\+")+)%s' % (quote, quote, quote))
    for item in one.finditer(body, *found.span("values")):
        yield item.span(1)


def record_line(body: bytes, secrets: Collection[str]) -> Line:
    """The line of one request body, which has to be a JSON object.

    secrets: what must not be written, wherever it stands in the body. Raises NotRecorded for
    bytes that are no JSON object in UTF-8, or that would be none without the key.
    """
    _check(body, "it is no JSON object in UTF-8")
    clean = _masked(_without_key_fields(body), secrets)
    if clean != body:
        _check(clean, "a key stands where JSON allows none")
    data = clean.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"
    return Line(data=data, had_key=clean != body)


def _check(body: bytes, otherwise: str) -> None:
    """Raises NotRecorded(otherwise) where the body is not strictly JSON, or not an object."""
    try:
        # Numbers are not computed: a long one is slow, or refused by Python alone.
        value = json.loads(body.decode(), parse_constant=_refuse, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        raise NotRecorded(otherwise) from None
    if not isinstance(value, dict):
        raise NotRecorded(otherwise)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")

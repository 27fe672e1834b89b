"""The user's own material, from a file."""

from __future__ import annotations

import codecs
from pathlib import Path

from request_timing.errors import UserError

# The longer marks first: UTF-32's begins with UTF-16's.
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)


def read_document(name: str, encoding: str | None = None) -> str:
    """The text of a file, without its byte order mark, line ends as they are.

    encoding: as Python names it; by default what the byte order mark says, else UTF-8. Raises
    UserError for a file that is missing, a directory, unreadable, empty, binary, or not in that
    encoding, and for an encoding that there is not.
    """
    try:
        data = Path(name).read_bytes()
    except IsADirectoryError:
        raise UserError(f"--doc {name}: expected a text file, found a directory; name a file in it"
                      ) from None
    except OSError as error:
        raise UserError(f"--doc {name}: expected a text file, found: {error.strerror}; correct the "
                      "path") from None
    chosen = encoding or next((known for bom, known in _BOMS if data.startswith(bom)), "utf-8")
    try:
        text = data.decode(chosen).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if chosen == "utf-8" and b"\0" in data:
            raise _binary(name, data) from None
        raise UserError(f"--doc {name}: expected {chosen.upper()}, found the "
                      f"byte 0x{data[error.start]:02x} at offset {error.start}; name its "
                      "--encoding, such as latin-1, gb18030 or shift_jis") from None
    except (LookupError, UnicodeError):
        raise UserError(f"--encoding {encoding}: expected the name of a text encoding, such as "
                      "latin-1, gb18030 or utf-16, found none of that name") from None
    if "\0" in text:
        raise _binary(name, data)
    if not text.strip():
        raise UserError(f"--doc {name}: expected a text, found an empty file"
                      f"{' (white space alone)' if text else ''}; name another")
    return text


def _binary(name: str, data: bytes) -> UserError:
    return UserError(f"--doc {name}: expected text, found a binary file (a zero byte at offset "
                   f"{data.index(0)}); extract its text first, or name its --encoding")

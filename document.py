"""The user's own material, from a file."""

from __future__ import annotations

import codecs
from pathlib import Path

from trouble import Trouble

_OTHER_BOMS = (
    (codecs.BOM_UTF32_LE, "UTF-32"), (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"),
)


def read_document(name: str) -> str:
    """The text of a UTF-8 file, without its BOM, line ends as they are.

    Raises Trouble for a file that is missing, a directory, unreadable, empty, binary or in
    another encoding.
    """
    try:
        data = Path(name).read_bytes()
    except IsADirectoryError:
        raise Trouble(f"--doc {name}: expected a text file, found a directory; name a file in it"
                      ) from None
    except OSError as error:
        raise Trouble(f"--doc {name}: expected a text file, found: {error.strerror}; correct the "
                      "path") from None
    for bom, encoding in _OTHER_BOMS:
        if data.startswith(bom):
            raise Trouble(f"--doc {name}: expected UTF-8, found {encoding} (by its byte order "
                          f"mark); convert it: iconv -f {encoding} -t UTF-8")
    if b"\0" in data:
        raise Trouble(f"--doc {name}: expected text, found a binary file (a zero byte at offset "
                      f"{data.index(0)}); extract its text first")
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        offset = error.start + (len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0)
        raise Trouble(f"--doc {name}: expected UTF-8, found the byte 0x{data[offset]:02x} at "
                      f"offset {offset}; convert it: iconv -f ITS_ENCODING -t UTF-8") from None
    if not text.strip():
        raise Trouble(f"--doc {name}: expected a text, found an empty file"
                      f"{' (white space alone)' if text else ''}; name another")
    return text

"""Wrong command lines and set-ups: one line that says what to do, status 2, and nothing spent.

These call `main` in this process, since two hundred interpreters would take minutes to start;
test_bad_commands.py has a few as a user runs them.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import api_timing
import local_cache
from conftest import NOT_INHERITED, Outcome, assert_one_line
from request_timing.records.run import SCHEMA_VERSION
from wire_stub import Answer, said, wire_stub

MAINS: dict[str, Callable[[list[str]], int]] = {
    "api_timing.py": api_timing.main, "local_cache.py": local_cache.main,
}
SCRIPTS = pytest.mark.parametrize("script", MAINS)
API, LOCAL = MAINS

# What a script prints of its plan comes before its first request; only the trouble is wanted here.
QUIET = "--quiet"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder, no variable that matters, and what `main` changes put back."""
    monkeypatch.chdir(tmp_path)
    for name in NOT_INHERITED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]
    yield tmp_path
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


def call(script: str, *flags: str, capsys: pytest.CaptureFixture[str]) -> Outcome:
    """What the script's `main` leaves when it is called in this process."""
    capsys.readouterr()
    try:
        status = MAINS[script](list(flags))
    except SystemExit as end:
        assert isinstance(end.code, int)
        status = end.code
    out, err = capsys.readouterr()
    return Outcome(status, out, err, None)


def assert_trouble(
    script: str, *flags: str, says: tuple[str, ...], capsys: pytest.CaptureFixture[str],
    folder: Path,
) -> Outcome:
    """The script says its name and `says` in one line, exits with 2, and writes no file."""
    before = sorted(folder.rglob("*"))
    outcome = call(script, *flags, capsys=capsys)
    assert_one_line(outcome, 2, *says)
    assert outcome.err.startswith(f"{script}: ")
    assert "defect" not in outcome.err
    assert sorted(folder.rglob("*")) == before
    return outcome


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- values of flags, the same in both scripts


@SCRIPTS
@pytest.mark.parametrize(("flags", "says"), [
    ("--lengths ten", ("--lengths", "expected whole numbers", "'ten'")),
    ("--lengths 1000,x", ("--lengths", "'1000,x'")),
    ("--lengths 1e3", ("--lengths", "'1e3'")),
    ("--lengths 10.5", ("--lengths", "'10.5'")),
    ("--lengths=-5", ("--lengths", "'-5'")),
    ("--lengths 0", ("--lengths", "from 1 up", "'0'")),
    ("--lengths 2000,1000", ("--lengths", "each larger than the one before", "'2000,1000'")),
    ("--lengths 1000,1000", ("--lengths", "'1000,1000'")),
    ("--lengths=", ("--lengths", "''")),
    ("--lengths 1000,", ("--lengths", "'1000,'")),
    ("--lengths ١٠", ("--lengths", "expected whole numbers")),  # noqa: RUF001 Arabic digits
    ("--outputs 400,50", ("--outputs", "'400,50'")),
    ("--outputs 0,50", ("--outputs", "'0,50'")),
    ("--context 0", ("--context", "from 1 up", "'0'")),
    ("--context=-1", ("--context", "'-1'")),
    ("--context many", ("--context", "'many'")),
    ("--turns 0", ("--turns", "'0'")),
    ("--turns 2.5", ("--turns", "'2.5'")),
    ("--repeats 0", ("--repeats", "'0'")),
    ("--repeats", ("--repeats", "expected one argument")),
    ("--seed x", ("--seed", "expected a whole number", "'x'")),
    ("--only lenght", ("--only", "length,output,cache", "'lenght'")),
    ("--only length,every", ("--only", "'every'")),
    ("--only=", ("--only", "length,output,cache")),
    ("--no-such-flag", ("--no-such-flag", "--help")),
    ("--demo --serve m.gguf", ("--serve", "not allowed with", "--demo")),
])
def test_a_flag_with_a_wrong_value(
    here: Path, capsys: pytest.CaptureFixture[str], script: str, flags: str, says: tuple[str, ...]
) -> None:
    assert_trouble(script, *flags.split(), says=says, capsys=capsys, folder=here)


@SCRIPTS
@pytest.mark.parametrize(("name", "content", "says"), [
    ("missing.txt", None, ("No such file",)),
    ("empty.txt", b"", ("empty",)),
    ("bom.txt", b"\xef\xbb\xbf", ("empty",)),
    ("blank.txt", b" \n\t\r\n\xc2\xa0", ("empty",)),
    ("binary.bin", b"\x7fELF\x02\0\0", ("binary", "offset 5")),
    ("latin1.txt", "caf\xe9".encode("latin-1"), ("UTF-8", "0xe9", "offset 3", "--encoding")),
    ("bom_latin1.txt", b"\xef\xbb\xbfcaf\xe9", ("UTF-8", "0xe9", "offset 6")),
    ("utf16.txt", "text".encode("utf-16")[:-1], ("UTF-16", "offset 8")),
    ("utf32.txt", "text\0".encode("utf-32"), ("zero byte",)),
    ("utf16_without_bom.txt", "text".encode("utf-16-le"), ("zero byte",)),
])
def test_a_document_that_is_no_text(
    here: Path, capsys: pytest.CaptureFixture[str], script: str, name: str, content: bytes | None,
    says: tuple[str, ...]
) -> None:
    if content is not None:
        (here / name).write_bytes(content)
    assert_trouble(script, "--doc", name, says=("--doc", name, *says), capsys=capsys, folder=here)


@SCRIPTS
def test_a_document_that_is_a_directory(
    here: Path, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    (here / "folder").mkdir()
    for name in ("folder", ""):
        assert_trouble(script, "--doc", name, says=("--doc", "directory"), capsys=capsys,
                       folder=here)


# --- the output: found out before any server is contacted


@SCRIPTS
@pytest.mark.parametrize(("out", "says"), [
    ("nowhere/run.json", ("expected a folder nowhere", "make it first")),
    ("folder", ("found a directory",)),
    ("old.json", ("old.json exists", "another name")),
    ("old.json/run.json", ("expected a folder old.json",)),
    ("killed.json", ("killed.json.partial.jsonl exists", "--show")),
])
def test_an_output_that_cannot_be(
    here: Path, capsys: pytest.CaptureFixture[str], script: str, out: str, says: tuple[str, ...]
) -> None:
    (here / "folder").mkdir()
    (here / "old.json").write_text("{}")
    (here / "killed.json.partial.jsonl").write_text("{}")
    # A llama-server of sorts as well, so that either script would go on to spend something.
    with wire_stub() as stub:
        server = ("--base-url", stub.url) if script == API else ("--url", stub.url)
        assert_trouble(script, *server, "--out", out, says=says, capsys=capsys, folder=here)
        assert stub.connections == 0
    assert (here / "old.json").read_text() == "{}"


# --- --show


@SCRIPTS
@pytest.mark.parametrize(("content", "says"), [
    (None, ("cannot be read", "No such file")),
    ("", ("expected a run's JSON",)),
    ("not JSON\nat all", ("expected a run's JSON",)),
    ("[1, 2]", ("expected a run's JSON",)),
    ("5", ("expected a run's JSON",)),
    ('{"a": 1}', ("expected a run's JSON",)),
    ('{"schema_version": 99}', (f"expected schema_version {SCHEMA_VERSION}", "found 99")),
    ('{"schema_version": null}', ("expected schema_version",)),
    (f'{{"schema_version": {SCHEMA_VERSION}}}', ("expected a run's JSON",)),
], ids=str)
def test_showing_what_is_no_run(
    here: Path, capsys: pytest.CaptureFixture[str], script: str, content: str | None,
    says: tuple[str, ...]
) -> None:
    if content is not None:
        (here / "run.json").write_text(content)
    assert_trouble(script, "--show", "run.json", says=("run.json", *says), capsys=capsys,
                   folder=here)


@SCRIPTS
def test_showing_bytes_and_a_directory(
    here: Path, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    (here / "bytes").write_bytes(b"\xff\xfe\0")
    assert_trouble(script, "--show", "bytes", says=("UTF-8",), capsys=capsys, folder=here)
    assert_trouble(script, "--show", ".", says=("directory",), capsys=capsys, folder=here)


# --- the server of local_cache.py


@pytest.mark.parametrize("url", [
    "garbage://x", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999", "http://127.0.0.1:port",
    "http://127.0.0.1:-1", "http://[::1", "", "http://a..b:80", f"http://{'a' * 64}.example",
])
def test_a_url_that_is_none(here: Path, capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert_trouble(LOCAL, f"--url={url}", says=("--url",), capsys=capsys, folder=here)


def test_no_server_on_the_port(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"127.0.0.1:{free_port()}"
    says = ("expected a llama-server", url, "--url", "--demo")
    assert_trouble(LOCAL, "--url", url, says=says, capsys=capsys, folder=here)
    assert_trouble(API, "--base-url", f"http://{url}/v1", "--model", "m", QUIET,
                   says=(url, "refused", "--demo"), capsys=capsys, folder=here)
    assert_trouble(API, "--base-url", f"http://{url}/v1", QUIET,
                   says=(url, "refused", "--demo"), capsys=capsys, folder=here)


@pytest.mark.parametrize("answer", [
    said("text/html", "<!doctype html>\n<title>Router</title>"),
    said("application/json", '{"detail": "Not Found"}', 404),
    said("application/json", '{"ok": true}'),
    said("application/json", "[]"),
    Answer(status=204),
], ids=["html", "404", "json", "list", "204"])
@SCRIPTS
def test_a_server_that_is_another(here: Path, capsys: pytest.CaptureFixture[str], script: str,
                                  answer: Answer) -> None:
    with wire_stub(then=answer, everywhere=True) as stub:
        url = stub.url.removesuffix("/v1")
        flags, says = (("--url", url), "expected a llama-server") if script == LOCAL else (
            ("--base-url", url, QUIET), "--model")
        assert_trouble(script, *flags, says=(says, url), capsys=capsys, folder=here)


# --- the endpoint and the key of api_timing.py


@pytest.mark.parametrize(("flags", "says"), [
    ("", ("AI_BUILDER_TOKEN", "--demo")),
    ("--provider openai --model m", ("OPENAI_API_KEY", "--demo")),
    ("--provider nobody", ("--provider", "'nobody'", "ai-builder", "openrouter")),
    ("--provider openai --base-url http://127.0.0.1:1/v1", ("--base-url", "not allowed with")),
    ("--base-url 127.0.0.1:8080/v1", ("--base-url", "http://")),
    ("--base-url localhost", ("--base-url", "http://")),
    ("--base-url ftp://x/v1", ("--base-url", "http://")),
    ("--base-url http://", ("--base-url", "http://")),
    ("--base-url http://[::1/v1", ("--base-url", "http://")),
    ("--base-url http://:80/v1", ("--base-url", "http://")),
    ("--base-url http://127.0.0.1:port/v1", ("--base-url", "http://")),
    ("--base-url http://127.0.0.1:99999/v1", ("--base-url", "http://")),
])
def test_an_endpoint_that_is_none(here: Path, capsys: pytest.CaptureFixture[str], flags: str,
                                  says: tuple[str, ...]) -> None:
    assert_trouble(API, *flags.split(), says=says, capsys=capsys, folder=here)


def test_a_base_url_in_the_environment(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "127.0.0.1:8080/v1")
    assert_trouble(API, says=("OPENAI_BASE_URL", "http://"), capsys=capsys, folder=here)


@pytest.mark.parametrize("key", ["sk-abc-123", "gsk_abcdef123456", "abc.def/1+2==", "two words"])
@pytest.mark.parametrize("flag", ["--api-key-env", "--api-key"])
def test_a_key_given_for_its_variables_name(
    here: Path, capsys: pytest.CaptureFixture[str], flag: str, key: str
) -> None:
    outcome = assert_trouble(API, flag, key, says=("--api-key-env",), capsys=capsys, folder=here)
    assert key not in outcome.err


@pytest.mark.parametrize("flags", [("--key", "sk-abc-123"), ("--key=sk-abc-123",), ("sk-abc-123",)])
def test_a_key_where_no_flag_takes_one(
    here: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    outcome = assert_trouble(API, *flags, says=("--help",), capsys=capsys, folder=here)
    assert "sk-abc-123" not in outcome.err


@pytest.mark.parametrize("key", ["two words", "line\nend", "caf\xe9", "tab\tstop", "\x7fdelete"])
def test_a_key_that_no_header_can_carry(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("AI_BUILDER_TOKEN", key)
    outcome = assert_trouble(API, says=("key", "copy it again"), capsys=capsys, folder=here)
    assert key not in outcome.err
    monkeypatch.setenv("AI_BUILDER_TOKEN", " \n")
    assert_trouble(API, says=("AI_BUILDER_TOKEN", "--demo"), capsys=capsys, folder=here)


@pytest.mark.parametrize("parse", [api_timing.parse, local_cache.parse])
def test_credentials_do_not_reach_the_recorded_command(
    parse: Callable[[list[str]], object]
) -> None:
    flag = "--base-url" if parse is api_timing.parse else "--url"
    for url in ("http://user:hunter2@127.0.0.1:80/v1", "user:hunter2@127.0.0.1:80",
                "http://127.0.0.1:80/v1?key=hunter2", "http://127.0.0.1:80/v1#hunter2"):
        for words in ([flag, url], [f"{flag}={url}"]):
            assert "hunter2" not in json.dumps(vars(parse(words))["command"])


# --- the model that either script serves


@SCRIPTS
@pytest.mark.parametrize(("model", "says"), [
    ("missing.gguf", "no such file"), ("folder", "a directory"), ("text.gguf", "another kind"),
    ("empty.gguf", "another kind"), ("hf:some/repo:Q4", "llama-server on the PATH"),
])
def test_a_model_that_is_none(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, script: str,
    model: str, says: str
) -> None:
    monkeypatch.setenv("PATH", str(here))  # no llama-server on it
    (here / "folder").mkdir()
    (here / "text.gguf").write_text("no model")
    (here / "empty.gguf").write_text("")
    assert_trouble(script, "--serve", model, says=("--serve", says), capsys=capsys, folder=here)

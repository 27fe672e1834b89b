"""What a body becomes in a recording: the same bytes, but for line ends and keys."""

from __future__ import annotations

import base64
import json
import time

import pytest

from request_timing.recorder.redaction import NotRecorded, masked, record_line, secrets_of

KEY = "sk-a1b2c3d4"


def line(body: str | bytes, *secrets: str) -> bytes:
    """The line without its end."""
    made = record_line(body.encode() if isinstance(body, str) else body, secrets).data
    assert made.endswith(b"\n") and made.count(b"\n") == 1
    return made[:-1]


@pytest.mark.parametrize("body", [
    '{"b":1,"a":2}',
    '{ "a" : 1.0 , "b":1e2,"c":-0.0, "d": 1E+2 }',
    '{"a": "\\u00e9 é \\/ / \\n \\ud83d"}',
    '{"a": "line \u2028 next \u0085 form"}',
    '{"a":1,"a":2}',
    '{"n": ' + "9" * 5000 + "}",  # longer than Python turns into a number
    '{"n": 1e999}',
    "  {}\t",
])
def test_the_bytes_are_those_that_were_sent(body: str) -> None:
    made = record_line(body.encode(), [])
    assert made == (body.encode() + b"\n", False)


def test_a_line_end_becomes_a_space_and_every_byte_keeps_its_offset() -> None:
    body = '{\r\n  "a": "x\\ny",\n  "b": [1,\n2]\n}'
    assert line(body) == b'{    "a": "x\\ny",   "b": [1, 2] }'
    assert len(line(body)) == len(body)
    assert json.loads(line(body)) == json.loads(body)


@pytest.mark.parametrize("body", [
    b"", b"hello", b"[1]", b'"text"', b"1", b"null", b'{"a":}', b'{"a":1}{"b":2}', b'{"a":NaN}',
    b'{"a":-Infinity}', b'{"a":"\n"}', b"\xef\xbb\xbf{}", b'{"a":"\xff"}',
    '{"a":1}'.encode("utf-16"), b"\x1f\x8b\x08\x00", b'{"a":' + b"[" * 100_000,
])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(NotRecorded, match="no JSON object"):
        record_line(body, [])


@pytest.mark.parametrize(("body", "expected"), [
    ('{"api_key":"abc"}', '{"api_key":"***"}'),
    ('{"apiKey": "abc", "b":1}', '{"apiKey": "***", "b":1}'),
    ('{"AZURE_OPENAI_API-KEY" : "abc"}', '{"AZURE_OPENAI_API-KEY" : "***"}'),
    ('{"tools":[{"type":"mcp","authorization":"abc"}]}',
     '{"tools":[{"type":"mcp","authorization":"***"}]}'),
    ('{"headers":{"Authorization":"Bearer abc","X":"y"}}',
     '{"headers":{"Authorization":"***","X":"y"}}'),
    ('{"mcp_servers":[{"authorization_token":"abc"}]}',
     '{"mcp_servers":[{"authorization_token":"***"}]}'),
    ('{"aws_secret_access_key":"a/b+c","aws_session_token":"t"}',
     '{"aws_secret_access_key":"***","aws_session_token":"***"}'),
    (r'{"api_key":"a\"b\\c"}', '{"api_key":"***"}'),
    # in the arguments of a tool call: JSON in a string, and once more in a string of that
    (r'{"arguments":"{\"api_key\": \"abc\", \"q\": 1}"}',
     r'{"arguments":"{\"api_key\": \"***\", \"q\": 1}"}'),
    (r'{"a":"{\"b\":\"{\\\"api_key\\\":\\\"abc\\\"}\"}"}',
     r'{"a":"{\"b\":\"{\\\"api_key\\\":\\\"***\\\"}\"}"}'),
])
def test_a_field_that_holds_a_key_is_masked(body: str, expected: str) -> None:
    made = record_line(body.encode(), [])
    assert made == (expected.encode() + b"\n", True)
    json.loads(made.data)


@pytest.mark.parametrize("body", [
    '{"properties":{"api_key":{"type":"string"}},"required":["api_key"]}',
    '{"api_key":"","other":null}',
    '{"api_key":null}',
    '{"max_tokens":5,"token":"the","key":"value","tokens":"abc"}',
    '{"content":"set api_key: then go on"}',
    '{"monkey":"banana"}',
    '{"properties":{"password":{"type":"string"},"secret":{"type":"string"}}}',
    '{"required":["username","password"],"enum":["secret","api_key"]}',
    r'{"a":"{\"password\": {\"type\": \"string\"}}"}',
    '{"eos_token":"</s>","next_page_token":"abc","public_key":"abc","secretary":"Ann"}',
    '{"api_keys":[],"passwords":[1,2],"secret":true}',
])
def test_what_only_looks_like_a_key_stays(body: str) -> None:
    assert record_line(body.encode(), []) == (body.encode() + b"\n", False)


def test_a_known_key_is_masked_wherever_it_stands() -> None:
    body = json.dumps({"content": f"my key is {KEY}, yes {KEY}!", KEY: {"deep": [KEY]}})
    made = line(body, KEY)
    assert made == b'{"content": "my key is ***, yes ***!", "***": {"deep": ["***"]}}'


@pytest.mark.parametrize("written", ["ab/cd+ef=", r"ab\/cd+ef=", r"ab/cd\u002bef\u003D",
                                     r"ab\\\/cd\\u002bef="])
def test_a_key_is_found_as_an_encoder_may_escape_it(written: str) -> None:
    assert line(f'{{"a":"<{written}>"}}', "ab/cd+ef=") == b'{"a":"<***>"}'


def test_a_key_that_json_cannot_lose_is_not_recorded_at_all() -> None:
    with pytest.raises(NotRecorded, match="a key stands where JSON allows none"):
        record_line(b'{"user_id": 12345678}', ["12345678"])


def test_of_two_keys_the_longer_goes_first() -> None:
    assert line('{"a":"secret-secret-2"}', "secret", "secret-secret-2") == b'{"a":"***"}'


def test_the_secrets_of_a_request() -> None:
    basic = base64.b64encode(b"user:pass-word").decode()
    session = "0123456789abcdef"
    assert secrets_of([
        ("Authorization", "Bearer tok-en1"), ("x-api-key", "x-key1"), ("API-KEY", "azure-1"),
        ("X-Goog-Api-Key", "goog-1"), ("Cookie", f"lang=english; sid={session}"),
        ("Content-Type", "application/json"), ("User-Agent", "an agent"),
    ]) == {"tok-en1", "x-key1", "azure-1", "goog-1", session}
    assert secrets_of([("authorization", f"Basic {basic}")]) == {basic, "pass-word"}
    assert secrets_of([("authorization", "Basic no base64")]) == {"no base64"}
    assert secrets_of([("key", "query-1"), ("api_key", "query-2"), ("model", "gpt-like")]) == {
        "query-1", "query-2"}


@pytest.mark.parametrize(("name", "value"), [
    ("Authorization", f"Bearer\t{KEY}"), ("Authorization", f"Bearer  {KEY}"),
    ("Authorization", f'Token token="{KEY}"'), ("Authorization", f"bearer, {KEY}"),
    ("Authorization", f"AWS4-HMAC-SHA256 Credential=AKIA/x, Signature={KEY}"),
    ("X-Api-Secret", KEY), ("Api-Secret", KEY), ("X-Auth", KEY), ("X-Signature", KEY),
    ("apikey", KEY), ("X-Jwt", KEY), ("sig", KEY), ("password", KEY), ("apiToken", KEY),
    ("Authorization", "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()),
    ("Authorization", "Basic " + base64.b64encode(f"{KEY}:x".encode()).decode()),
    ("Cookie", f'a=b; session="{KEY}-{KEY}"'),
])
def test_a_key_is_known_in_any_header(name: str, value: str) -> None:
    body = json.dumps({"content": f"my key is {KEY}-{KEY}, and a user is developer"})
    assert KEY.encode() not in line(body, *secrets_of([(name, value)]))


def test_the_name_of_a_user_beside_a_password_is_a_word() -> None:
    basic = base64.b64encode(b"developer:pass-word").decode()
    assert secrets_of([("authorization", f"Basic {basic}")]) == {basic, "pass-word"}


@pytest.mark.parametrize("name", ["Accept", "Host", "X-Author", "Monkey", "X-Session-Id",
                                  "Content-Type", "design", "X-Keyboard", "path"])
def test_other_headers_hold_no_secret(name: str) -> None:
    assert secrets_of([(name, "something long")]) == set()


@pytest.mark.parametrize("name", [
    "apiToken", "api-token", "api_token", "github_token", "secret", "password", "private_key",
    "client_secret", "clientSecret", "DB_PASSWORD", "id_token", "passphrase", "apiKeys",
    "api_key_2", "HF_TOKEN", "signing-key"])
@pytest.mark.parametrize("form", ['{"%s":"abc"}', r'{"a":"{\"%s\": \"abc\"}"}',
                                  '{"%s": ["abc", "abc"]}', r'{"a":"{\"%s\":[\"abc\"]}"}'])
def test_fields_of_many_names_hold_a_key(name: str, form: str) -> None:
    body = form % name
    assert line(body) == body.replace("abc", "***").encode()


def test_a_large_prompt_is_looked_through_quickly() -> None:
    text = r'The key of the house, a token and a secret password, are with the \"keeper\". '
    body = b'{"content":"%s"}' % (text.encode() * 15_000)  # more than a megabyte
    start = time.perf_counter()
    assert not record_line(body, []).had_key
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize("placeholder", ["none", "EMPTY", "x", "dummy", ""])
def test_what_stands_in_for_a_key_masks_no_word_of_a_prompt(placeholder: str) -> None:
    assert secrets_of([("Authorization", f"Bearer {placeholder}")]) == set()


def test_a_message_is_masked_too() -> None:
    assert masked(f"no é at {KEY}/v1", {KEY}) == "no é at ***/v1"

"""Attacks on Studio: foreign hosts and pages, guessed tokens, paths that lead out, huge requests."""

import os
import re
import socket
from http.client import HTTPConnection
from urllib.parse import quote

import pytest

from querysmasher.studio.security import HEADERS, MOST_BYTES, confined
from tests.studio.conftest import SPEC

pytestmark = pytest.mark.slow


def test_it_listens_on_this_machine_only(studio):
    with open("/proc/net/tcp") as table:  # noqa: PTH123
        listening = [line.split() for line in table if line.split()[3] == "0A"]
    own = [entry[1].split(":")[0] for entry in listening if int(entry[1].split(":")[-1], 16) == studio.port]
    assert own == ["0100007F"], "127.0.0.1, in the order of a little-endian machine"
    with socket.socket(socket.AF_INET6) as other, pytest.raises(OSError, match=r"refused|assign|support"):
        other.connect(("::1", studio.port))


@pytest.mark.parametrize("host", ["evil.example", "localhost", "127.0.0.1", "127.0.0.1:1", "", "[::1]"])
def test_a_foreign_name_for_this_machine_is_refused(studio, host):
    """DNS rebinding: the browser believes that it talks with the attacker's own site."""
    assert studio.ask("GET", "/decide", host=host)[0] == 421
    assert studio.ask("POST", "/slide", {"position": 1}, host=host)[0] == 421


def test_two_hosts_are_refused(studio):
    own = f"127.0.0.1:{studio.port}"
    assert studio.ask("GET", "/decide", host=[own, "evil.example"])[0] in (400, 421)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1", None]
)
def test_a_change_from_another_page_is_refused(studio, origin):
    before = studio.spec
    assert studio.ask("POST", "/slide", {"position": 1}, origin=origin)[0] == 403
    assert studio.spec == before


def test_a_read_from_another_page_is_refused(studio):
    assert studio.ask("GET", "/decide", Origin="http://evil.example")[0] == 403
    assert studio.ask("GET", "/decide", Sec_Fetch_Site="cross-site")[0] == 403
    assert studio.ask("GET", "/decide", Sec_Fetch_Site="same-site")[0] == 403
    assert studio.ask("GET", "/decide", Sec_Fetch_Site="same-origin")[0] == 200


@pytest.mark.parametrize(
    "cookie", [None, "querysmasher-studio=x", "a=b; c", '=;;;="\\', "querysmasher-studio-{}="]
)
@pytest.mark.parametrize("path", ["/", "/decide", "/static/studio.js", "/nowhere"])
def test_nothing_answers_without_the_token(studio, cookie, path):
    given = cookie and cookie.format(studio.port)
    status, headers, text = studio.ask("GET", path, cookie=given)
    assert (status, text) == (403, "Refused: no token; open the address that the command printed\n")
    assert "set-cookie" not in headers


@pytest.mark.parametrize("token", ["", "x", "{}x", "{}&token={}"])
def test_a_wrong_token_opens_nothing(studio, token):
    right = studio.address.partition("token=")[2]
    status, headers, _ = studio.ask("GET", f"/open?token={token.format(right, right)}", cookie=None)
    assert status == 403
    assert "set-cookie" not in headers


def test_the_token_is_long_new_and_kept_from_scripts(studio, opened):
    other = opened()
    tokens = {one.address.partition("token=")[2] for one in (studio, other)}
    assert len(tokens) == 2
    assert min(map(len, tokens)) >= 43
    assert studio.port != other.port
    path = studio.address.removeprefix(studio.origin)
    cookie = studio.ask("GET", path, cookie=None)[1]["set-cookie"]
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert studio.ask("GET", "/decide", cookie=other.cookie)[0] == 403, "a browser does not tell ports apart"


@pytest.mark.parametrize("path", ["/decide", "/nowhere", "/open", "/static/studio.js"])
def test_every_answer_has_the_headers(studio, path):
    _, headers, _ = studio.ask("GET", path)
    for name, value in HEADERS.items():
        assert headers[name.lower()] == value
    policy = headers["content-security-policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")
    assert "server" not in headers


def test_pages_have_no_inline_scripts_or_styles(studio):
    for path in ("/decide", "/text"):
        text = studio.get(path)
        assert re.findall(r"<script(?![^>]* src=)[^>]*>", text) == []
        assert re.findall(r"<style|\sstyle=|\son\w+=|hx-on|javascript:", text) == []
        assert (
            re.findall(r'(?:src|href)="(?!/)', text.replace('href="#', "").replace('href="data:,"', "")) == []
        ), "nothing from elsewhere"


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/htmx.LICENSE",
        "/release.toml",
        "/people.csv",
    ],
)
def test_no_path_leads_to_a_file_or_a_folder(studio, path):
    assert studio.ask("GET", path)[0] == 404


def test_uploads_are_bounded(studio):
    before = studio.spec
    assert studio.ask("POST", "/text", body=b"text=" + b"x" * MOST_BYTES)[0] == 413
    assert studio.ask("POST", "/text", body=b"", Content_Length=str(10**15))[0] == 413
    assert studio.ask("POST", "/text", body=b"", Content_Length="-1")[0] in (400, 411)
    connection = HTTPConnection("127.0.0.1", studio.port, timeout=20)
    about = {"Host": f"127.0.0.1:{studio.port}", "Cookie": studio.cookie, "Origin": studio.origin}
    connection.request("POST", "/text", iter([b"text=", b"x" * 100]), about, encode_chunked=True)
    assert connection.getresponse().status == 411
    connection.close()
    assert studio.spec == before


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_other_methods_change_nothing(studio, method):
    assert studio.ask(method, "/decide")[0] == 405


@pytest.mark.parametrize("key", ["/set", "/slide", "/text", "/undo", "/cancel", "/definition"])
def test_reading_changes_nothing(studio, key):
    before = studio.spec
    assert studio.ask("GET", f"{key}?position=1&text=x")[0] in (405, 200)
    assert studio.spec == before


OUTSIDE = ["../secret.csv", "/etc/passwd", "inside/../../secret.csv", "link/secret.csv", "link", "a\0b"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_paths_are_confined(tmp_path, name):
    folder = tmp_path / "work"
    (folder / "inside").mkdir(parents=True)
    (tmp_path / "secret.csv").write_text("attribute,kind,values\nzebra,categorical,Zebra77123\n")
    (folder / "link").symlink_to(tmp_path)
    assert confined(folder, name) is None
    assert confined(folder, "inside/new.csv") == folder / "inside/new.csv"
    (folder / "alias").symlink_to("inside")
    assert confined(folder, "alias/new.csv") == folder / "alias/new.csv", "a link that stays inside"


def test_a_spec_cannot_lead_out(opened):
    studio = opened()
    secret = studio.folder.parent / "secret.csv"
    secret.write_text("attribute,kind,values\nzebra,categorical,Zebra77123\n")
    (studio.folder / "link.csv").symlink_to(secret)
    before = studio.spec
    for name in ("../secret.csv", str(secret), "link.csv"):
        for text in (
            f'codebook = "{name}"\n' + SPEC[SPEC.index("# The tables") :],
            SPEC.replace('"people.csv"', f'"{name}"'),
            SPEC + f'[output]\nfolder = "{name}"\n',
            SPEC.replace("delta = 1e-6", f'delta = 1e-6\nledger = "{name}"'),
            SPEC.replace("k = [1, 2]", f'k = 1\nfamily = {{age = {{hierarchy = "{name}"}}}}'),
        ):
            answer = studio.post("/text", 422, text=text)
            assert "expected a path in the folder of the spec" in answer
            assert "Zebra77123" not in answer
            assert studio.spec == before


@pytest.mark.parametrize(
    "where", ["//example.com/describe", "https://example.com/describe", "/\\example.com/describe", "describe"]
)
def test_a_change_leads_back_to_pages_of_studio_only(studio, where):
    status, headers, _ = studio.ask("POST", f"/set?back={quote(where, safe='')}", {})
    assert (status, headers["location"]) == (303, "/decide")


def test_a_file_that_another_program_writes_cannot_lead_out(studio_with_link):
    text = studio_with_link.get("/text")
    assert "expected a path in the folder of the spec" in text
    assert "Zebra77123" not in text


@pytest.fixture
def studio_with_link(opened):
    studio = opened()
    (studio.folder.parent / "secret.csv").write_text("attribute,kind,values\nzebra,categorical,Zebra77123\n")
    text = 'codebook = "../secret.csv"\n' + SPEC[SPEC.index("# The tables") :]
    (studio.folder / "release.toml").write_text(text)
    return studio


def test_a_second_studio_refuses_the_folder(opened, run, monkeypatch):
    first = opened()
    monkeypatch.chdir(first.folder)
    run("studio", "--no-browser", code=4).fails(
        4, f"another Studio has {str(first.folder)!r} open; close that one first"
    )
    other = first.folder / "other.toml"
    other.write_text(SPEC)
    assert "close that one first" in run("studio", "--no-browser", other, code=4).err
    first.close()
    assert not (first.folder / ".querysmasher-studio.lock").exists()
    opened()  # the folder is free again


def test_a_killed_studio_frees_its_folder(opened):
    first = opened()
    first.process.kill()
    first.process.wait()
    assert opened().get("/decide")


def test_what_a_spec_says_is_escaped(opened):
    hostile = "<script>window.broken=1</script>"
    studio = opened(SPEC.replace('"F", "M"', f'"{hostile}", "F"'))
    studio.planned()
    for path in ("/decide", "/text", "/figures"):
        assert hostile not in studio.get(path)
    answer = studio.post("/text", 422, text=f'x = "{hostile}"')
    assert hostile not in answer


def test_a_taken_port_is_refused(studio, tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "release.toml").write_text(SPEC)
    ran = run("studio", "--no-browser", "--port", studio.port, code=4)
    assert f"--port: port {studio.port} is taken" in ran.err
    assert os.listdir(tmp_path) == ["release.toml"]  # noqa: PTH208

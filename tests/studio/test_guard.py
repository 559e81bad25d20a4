"""Who may talk to the studio: tokens, passwords, names, origins, addresses and paths."""

import contextlib
import http.client
import json
import os
import urllib.parse

import pytest

from glocal.errors import ArgumentError, OutputError
from glocal.studio.guard import Guard
from glocal.studio.server import PASSWORD, listening, password_for

pytestmark = pytest.mark.xdist_group("studio")


async def page(scope, receive, send):
    """Answer everything that the guard lets through."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"the page"})


def ask(guard, path="/", method="GET", query="", body=b"", **headers):
    """Return status and headers of one request; `host` is the right one unless it is given."""
    found = {"host": "127.0.0.1:7860"} | headers
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(),
             "headers": [(name.encode(), value.encode()) for name, value in found.items()]}  # fmt: skip
    sent = []

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        sent.append(message)

    answer = guard(scope, receive, send)
    with contextlib.suppress(StopIteration):  # it waits for nothing, so that it needs no event loop
        while True:
            answer.send(None)
    return sent[0]["status"], dict(sent[0]["headers"])


@pytest.fixture
def guard(tmp_path):
    return Guard(page, served=tmp_path, port=7860, host="127.0.0.1")


def cookie(guard):
    return {"cookie": f"{guard.cookie}={guard.secret}"}


def test_the_token_opens_the_page_and_leaves_the_address(guard):
    assert ask(guard)[0] == ask(guard, query="token=wrong")[0] == 403
    status, headers = ask(guard, query=f"token={guard.token}")
    assert (status, headers[b"location"]) == (303, b"/")
    assert b"HttpOnly; SameSite=Strict" in headers[b"set-cookie"]
    assert guard.token.encode() not in headers[b"set-cookie"]
    assert ask(guard, cookie=headers[b"set-cookie"].split(b";")[0].decode())[0] == 200
    assert ask(guard, cookie=f"{guard.cookie}=wrong")[0] == 403
    assert ask(guard, query=f"token={guard.token}", **cookie(guard))[0] == 303
    assert ask(guard, "/config", query=f"token={guard.token}")[0] == 403  # only the page itself


def test_every_answer_says_that_nothing_is_loaded_from_elsewhere(guard):
    for found in (ask(guard), ask(guard, **cookie(guard))):
        assert b"default-src 'self'" in found[1][b"content-security-policy"]
        assert found[1][b"x-content-type-options"] == b"nosniff"


@pytest.mark.parametrize(
    "host", ["evil.example:7860", "evil.example", "127.0.0.1:80", "127.0.0.1", "10.0.0.1:7860", ""]
)
def test_another_name_is_refused_even_with_the_cookie(guard, host):
    assert ask(guard, host=host, **cookie(guard))[0] == 403


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost:7860", "LOCALHOST:7860", "[::1]:7860"])
def test_the_names_of_this_machine_are_known(guard, host):
    assert ask(guard, host=host, **cookie(guard))[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:7860"])
def test_another_page_is_refused_even_with_the_cookie(guard, origin):
    assert ask(guard, "/gradio_api/queue/join", "POST", origin=origin, **cookie(guard))[0] == 403
    assert ask(guard, "/gradio_api/queue/join", "POST", origin="http://127.0.0.1:7860", **cookie(guard))[0] == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/gradio_api/proxy=http://example.com"),
        ("GET", "/gradio_api/file=http://example.com/a.png"),
        ("GET", "/gradio_api/file/etc/passwd"),
        ("GET", "/static/../../../../etc/passwd"),
        ("GET", "/assets//etc/passwd"),
        ("GET", "/svelte/../../../etc/passwd"),
        ("GET", "/file=/etc/passwd"),
        ("GET", "/custom_component/a/client/component/../../../etc/passwd"),
        ("POST", "/gradio_api/vibe-edit"),
        ("POST", "/gradio_api/component_server"),
        ("GET", "/gradio_api/openapi.json"),
        ("GET", "/gradio_api/mcp/sse"),
        ("GET", "/monitoring"),
        ("GET", "/gradio_api/dev/reload"),
        ("POST", "/login"),
        ("PUT", "/"),
        ("DELETE", "/gradio_api/upload"),
    ],
)
def test_addresses_that_the_page_does_not_need_are_not_there(guard, method, path):
    assert ask(guard, path, method, **cookie(guard))[0] == 404


def test_only_files_of_the_workspace_are_answered(guard, tmp_path):
    (tmp_path / "a.png").write_bytes(b"1")
    secret = tmp_path.parent / f"{tmp_path.name}-secret.txt"
    secret.write_text("secret")
    (tmp_path / "link.png").symlink_to(secret)
    (tmp_path / "folder").symlink_to(tmp_path.parent)
    assert ask(guard, f"/gradio_api/file={tmp_path}/a.png", **cookie(guard))[0] == 200
    for name in (
        secret, f"{tmp_path}/../{secret.name}", f"{tmp_path}/link.png", f"{tmp_path}/folder/{secret.name}", tmp_path,
        "/etc/passwd", "etc/passwd", "../../etc/passwd", "a.png", f"{tmp_path}/missing.png", f"{tmp_path}/\0", "//etc/passwd",
    ):  # fmt: skip
        assert ask(guard, f"/gradio_api/file={name}", **cookie(guard))[0] == 404, name


def test_a_password_opens_the_page_on_other_machines(tmp_path, monkeypatch):
    monkeypatch.setattr("glocal.studio.guard._WRONG_PASSWORD_SECONDS", 0.0)
    guard = Guard(page, served=tmp_path, port=7860, host="0.0.0.0", password="much ado & more")
    assert ask(guard, host="192.168.1.7:7860")[0] == 401
    assert ask(guard, host="192.168.1.7:7860", query=f"token={guard.token}")[0] == 401  # the token is for this machine
    assert ask(guard, "/enter", "POST", body=b"password=wrong")[0] == 401
    assert ask(guard, "/enter", "POST", body=b"password=" + b"x" * 10_000)[0] == 401
    assert ask(guard, "/enter", "POST", body=b"password=much+ado+%26+more", origin="http://evil.example")[0] == 403
    status, headers = ask(guard, "/enter", "POST", body=b"password=much+ado+%26+more")
    assert status == 303
    known = headers[b"set-cookie"].split(b";")[0].decode()
    assert ask(guard, host="192.168.1.7:7860", cookie=known)[0] == 200
    assert ask(guard, host="evil.example:7860", cookie=known)[0] == 403


def test_other_machines_need_a_password(monkeypatch):
    monkeypatch.delenv(PASSWORD, raising=False)
    assert password_for("127.0.0.1") is password_for("localhost") is password_for("::1") is None
    for host in ("0.0.0.0", "192.168.1.7", "::", "studio.example"):
        with pytest.raises(
            ArgumentError, match="can be reached from other machines, and GLOCAL_STUDIO_PASSWORD is not set"
        ):
            password_for(host)
    monkeypatch.setenv(PASSWORD, "short")
    with pytest.raises(ArgumentError, match="or shorter than 8 characters"):
        password_for("0.0.0.0")
    monkeypatch.setenv(PASSWORD, "long enough")
    assert password_for("0.0.0.0") == "long enough"


def test_a_port_that_is_taken_is_refused_with_words():
    with (
        listening("127.0.0.1", 0) as sock,
        pytest.raises(
            OutputError, match=r"studio \(127.0.0.1\): port \d+: address already in use. Choose another --port"
        ),
    ):
        listening("127.0.0.1", sock.getsockname()[1])


# The real page, without a browser


def test_the_real_page_is_closed_without_the_token_and_answers_with_it(studio, client):
    host = urllib.parse.urlsplit(studio).netloc
    connection = http.client.HTTPConnection(host, timeout=30)
    connection.request("GET", "/config")
    assert connection.getresponse().status == 403
    assert client("GET", "/config")[0] == 200
    for path in ("/gradio_api/file=/etc/passwd", "/static/%2e%2e/%2e%2e/etc/passwd", "/assets/..%2f..%2fetc/passwd"):
        assert client("GET", path)[0] == 404


@pytest.mark.parametrize("form", ["{}", "/proc/self/root{}", "/tmp/../{}", "file://{}", "http://127.0.0.1:1{}"])
def test_a_request_cannot_name_a_file_of_the_machine_as_an_upload(client, tmp_path, form):
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"the secret")
    path = form.format(secret)
    given = {"path": path, "url": path, "orig_name": "a.png", "meta": {"_type": "gradio.FileData"}}
    answer = client.event(("style-photo", "change"), {"style-photo": given})
    assert "process_completed" in answer or "detail" in answer
    assert "figcaption" not in answer  # nothing was read
    assert "the secret" not in answer


def test_an_upload_that_is_too_large_is_refused(client):
    body = b'--x\r\nContent-Disposition: form-data; name="files"; filename="../../evil.png"\r\n\r\n' + b"0" * (2 << 20)
    status, _, answer = client(
        "POST", "/gradio_api/upload", body + b"\r\n--x--\r\n", **{"content-type": "multipart/form-data; boundary=x"}
    )
    assert status == 413
    assert b"maximum allowed size" in answer


def test_the_name_of_an_upload_cannot_leave_the_workspace(client, studio, pictures):
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="../../../evil.png"\r\n\r\n'
    body = head + (pictures / "painting.png").read_bytes() + b"\r\n--x--\r\n"
    status, _, answer = client(
        "POST", "/gradio_api/upload", body, **{"content-type": "multipart/form-data; boundary=x"}
    )
    assert status == 200
    (path,) = json.loads(answer)
    workspace = next(studio.folder.glob("glocal-studio-*"))
    assert os.path.realpath(path).startswith(f"{workspace}/served/")
    # And this is what the attacks above would look like if they were let through.
    given = {"path": path, "orig_name": "evil.png", "meta": {"_type": "gradio.FileData"}}
    assert "evil.png: 32 x 40, 8 bit" in client.event(("style-photo", "change"), {"style-photo": given})

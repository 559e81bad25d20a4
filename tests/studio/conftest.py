"""A studio and a browser for the tests of the page; one of each.

Where playwright or a Chromium is missing, these tests are left out, and say so. Every request that leaves the machine is
refused and fails the test, as every error in the browser's console does.
"""

import contextlib
import http.client
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path

import numpy as np
import pytest

from glocal.files.images.picture import Picture
from glocal.files.images.write import write_image

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAX_PIXELS = 40_000


def left_out():
    """Why there is no browser to test with, or nothing."""
    for name in ("gradio", "playwright"):
        if importlib.util.find_spec(name) is None:
            return f"the page is not tested: {name} is not installed (pip install glocal[studio] playwright)"
    if not any(shutil.which(name) for name in BROWSERS):
        return "the page is not tested: there is no Chromium (on Debian: apt-get install chromium)"
    return ""


class Address(str):
    """The address of a running studio, with its process and its temporary folder."""

    process: subprocess.Popen
    folder: Path


def start(folder, *flags, **environment):
    """Start a studio as a user does, with its temporary files in `folder`."""
    folder.mkdir(exist_ok=True)
    found = subprocess.Popen(
        [sys.executable, "-m", "glocal", "studio", "--no-open", "--port=0", *flags],
        stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(folder)} | environment,
    )  # fmt: skip
    address = Address(found.stdout.readline().strip())
    address.process, address.folder = found, folder
    return address


@pytest.fixture(scope="session")
def studio(tmp_path_factory):
    if importlib.util.find_spec("gradio") is None:
        pytest.skip("the page is not tested: gradio is not installed (pip install glocal[studio])")
    address = start(tmp_path_factory.mktemp("studio") / "tmp", f"--max-pixels={MAX_PIXELS}", "--max-upload=1M")
    yield address
    address.process.terminate()
    address.process.wait(30)
    assert list(address.folder.glob("glocal-studio-*")) == []  # nothing is left behind


class Client:
    """A program that knows the token and wants more than the page offers."""

    def __init__(self, address):
        found = urllib.parse.urlsplit(address)
        self.host = found.netloc
        status, headers, _ = self("GET", f"/?{found.query}")
        assert status == 303
        self.cookie = headers["set-cookie"].split(";")[0]

    def __call__(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(self.host, timeout=30)
        if hasattr(self, "cookie"):
            headers["cookie"] = self.cookie
        connection.request(method, path, body, {"content-type": "application/json"} | headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def event(self, target, values):
        """Run an event of the page as its own script does, and return everything that comes back.

        Values that are not given are those that the page shows at first.
        """
        _, _, config = self("GET", "/config")
        components = {one["id"]: one["props"] for one in json.loads(config)["components"]}
        names = {number: props.get("elem_id") for number, props in components.items()}
        found = next(
            one for one in json.loads(config)["dependencies"]
            if any(names.get(i) == target[0] and event == target[1] for i, event in one["targets"])
        )  # fmt: skip
        data = [values.get(names[i], components[i].get("value")) for i in found["inputs"]]
        session = "attack" + os.urandom(4).hex()
        body = json.dumps({"data": data, "fn_index": found["id"], "session_hash": session})
        status, _, answer = self("POST", "/gradio_api/queue/join", body)
        if status != 200:
            return answer.decode()
        return self("GET", f"/gradio_api/queue/data?session_hash={session}")[2].decode()

    def upload(self, path):
        """Upload a file, and return what the page sends for it in an event."""
        head = f'--x\r\nContent-Disposition: form-data; name="files"; filename="{path.name}"\r\n\r\n'
        body = head.encode() + path.read_bytes() + b"\r\n--x--\r\n"
        status, _, answer = self(
            "POST", "/gradio_api/upload", body, **{"content-type": "multipart/form-data; boundary=x"}
        )
        assert status == 200, answer
        return {"path": json.loads(answer)[0], "orig_name": path.name, "meta": {"_type": "gradio.FileData"}}


@pytest.fixture(scope="session")
def client(studio):
    return Client(studio)


@pytest.fixture(scope="module")
def browser():
    """One browser for a module: while it is open, no other test can use asyncio."""
    if left_out():
        pytest.skip(left_out())
    from playwright.sync_api import sync_playwright

    program = next(path for path in map(shutil.which, BROWSERS) if path)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


class Visitor:
    """A person with a browser: one page of their own, and everything that went wrong in it."""

    def __init__(self, browser, address, **settings):
        self.wrong = []
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | settings))
        self.context.set_default_timeout(150_000)
        host = address.split("/?")[0]
        self.context.route("**/*", lambda route: self._route(route, host))
        self.page = self.context.new_page()
        self.page.on("console", lambda message: message.type == "error" and self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.goto(address)
        self.page.wait_for_selector("#style-run")

    def _route(self, route, host):
        url = route.request.url
        if url.startswith((host, "data:", "blob:")):
            route.continue_()
        else:
            self.wrong.append(f"left the machine: {url}")
            route.abort()

    def tab(self, title):
        found = self.page.get_by_role("tab", name=title)
        if not found.is_visible():  # on a phone
            self.page.click("button[aria-label='More tabs']")
            found = self.page.locator(".overflow-dropdown").get_by_text(title)
        found.click()

    def upload(self, where, *paths):
        self.page.set_input_files(f"#{where} input[type=file]", [str(path) for path in paths])
        self.page.wait_for_selector(f"#{where}-look figcaption")

    def clear(self, where):
        """Take an upload back."""
        self.page.click(f"#{where} button[aria-label='Remove this file'], #{where} button[aria-label=Clear]")
        self.page.wait_for_selector(f"#{where} input[type=file]", state="attached")

    def status(self, job, text):
        """Wait until the status of a tab says something."""
        script = "([id, text]) => document.getElementById(id).innerText.includes(text)"
        try:
            self.page.wait_for_function(script, arg=[f"{job}-status", text])
        except Exception as error:
            shown = self.page.inner_text(f"#{job}-status")
            raise AssertionError(f"{job} says {shown!r} and not {text!r}; {self.wrong}") from error
        return self.page.inner_text(f"#{job}-status")

    def value(self, field, expected):
        """Wait up to ten seconds until a text field has this value; return what it has then."""
        with contextlib.suppress(Exception):  # what the field has says more than that the time is up
            script = "([id, text]) => document.querySelector(`#${id} textarea`).value == text"
            self.page.wait_for_function(script, arg=[field, expected], timeout=10_000)
        return self.page.input_value(f"#{field} textarea")

    def download(self, button, folder):
        with self.page.expect_download() as found:
            self.page.click(f"#{button}")
        path = folder / found.value.suggested_filename
        found.value.save_as(path)
        return path

    def leave(self):
        self.context.close()
        assert self.wrong == []


@pytest.fixture(scope="module")
def visitor(browser, studio):
    found = Visitor(browser, studio)
    yield found
    found.leave()


@pytest.fixture(scope="module")
def phone(browser, studio):
    """Another person, with a small screen, in the dark."""
    found = Visitor(browser, studio, viewport={"width": 360, "height": 740}, color_scheme="dark")
    yield found
    found.leave()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A 16-bit photo with profile and EXIF, and a painting."""
    from PIL import Image

    from glocal.files.metadata.profiles import srgb_profile

    exif = Image.Exif()
    exif[0x010F] = "A camera"

    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    photo = np.kron(rng.random((6, 8, 3)), np.ones((4, 4, 1))) * 0.8 + 0.1 * rng.random((24, 32, 3))
    painting = np.kron(rng.random((10, 8, 3)), np.ones((4, 4, 1)))
    write_image(
        folder / "photo.png", Picture((photo * 65535).astype(np.uint16), icc=srgb_profile(), exif=exif.tobytes()[6:])
    )
    write_image(folder / "painting.png", Picture((painting * 255).astype(np.uint8)))
    return folder

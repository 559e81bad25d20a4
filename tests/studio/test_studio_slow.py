"""Full-size checks: many jobs of many sessions, and the pictures of the page for the docs."""

import json
import os
import random
import time
from pathlib import Path

import pytest

from glocal.jobs.color import ColorFiles, ColorJob
from glocal.studio.orders import Made, Order, estimate, look_at_picture, run_order
from glocal.studio.studio import open_studio

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("studio")]


def below(pid="self"):
    """The processes that a process has started, and those that they have started."""
    found = [pid for task in Path(f"/proc/{pid}/task").iterdir() for pid in (task / "children").read_text().split()]
    return [one for child in found for one in (child, *below(child))]


def memory():
    """Bytes of this process and all below it; what they share counts once."""
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in ("self", *below())]
    return sum(int(text.split("\nPss:")[1].split()[0]) << 10 for text in texts)


def stored(**row):
    """Write a row into the results of benchmarks/studio.py if GLOCAL_STUDIO_RESULTS names the file."""
    path = Path(os.environ.get("GLOCAL_STUDIO_RESULTS", os.devnull))
    if path.is_file():
        found = json.loads(path.read_text())
        found["rows"] = [one for one in found["rows"] if one["kind"] != row["kind"]] + [row]
        path.write_text(json.dumps(found, indent=1) + "\n")


def test_fifty_jobs_of_ten_sessions_with_random_stops_are_none_of_them_lost(tmp_path, pictures):
    rng = random.Random(0)
    with open_studio(tmp_path) as studio:
        uploads = [studio.place.served / name for name in ("photo.png", "painting.png")]
        for upload in uploads:
            upload.write_bytes((pictures / upload.name).read_bytes())
        studio.quick(look_at_picture, uploads[0], 1 << 20)  # everything that stays is loaded
        before = memory()
        tickets = []
        for number in range(50):
            session = f"session {number % 10}"
            folder, (photo, reference) = studio.collected(session, uploads)
            job = ColorJob(ColorJob.Options(seed=number), ColorFiles(), others=(reference,))
            order = Order(job, folder, photo, "out.png")
            cost = studio.quick(estimate, order)
            tickets.append(studio.queue.submit(session, run_order, order, cost=cost))
        stopped = set()
        while not all(ticket.ended.is_set() for ticket in tickets):
            time.sleep(rng.uniform(0.2, 1.5))
            if len(stopped) < 30:
                number = rng.randrange(50)
                if not tickets[number].ended.is_set():
                    stopped.add(number)
                    studio.queue.stop(tickets[number])
        ends = [ticket.events()[-1] for ticket in tickets]
        assert {number for number, end in enumerate(ends) if end.name == "stopped"} <= stopped
        for number, end in enumerate(ends):
            if number not in stopped:
                assert isinstance(end.value, Made), end
                assert end.value.file.is_file()
        assert sum(end.name == "done" for end in ends) >= 20
        for number in range(10):
            studio.leave(f"session {number}")
        assert sorted(path.name for path in studio.place.served.iterdir()) == ["painting.png", "photo.png"]
        assert list(studio.place.private.iterdir()) == []
        after = memory()
        done = sum(end.name == "done" for end in ends)
        stored(kind="jobs", work=f"{done} of 50 jobs done, {50 - done} stopped", before=before, after=after)
        assert after - before < 30 << 20
        assert len(below()) <= 3  # the quick worker, the server from which it was forked, and the resource tracker
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def roomy(browser, tmp_path_factory):
    """A person in front of a studio that takes the samples."""
    from conftest import Visitor, start

    address = start(tmp_path_factory.mktemp("roomy") / "tmp")
    visitor = Visitor(browser, address, viewport={"width": 1200, "height": 1000})
    visitor.context.set_default_timeout(300_000)
    yield visitor
    visitor.leave()
    address.process.terminate()
    address.process.wait(30)


@pytest.mark.parametrize("job", ["style", "color", "denoise", "speech", "graph"])
def test_pictures_of_the_page(roomy, tmp_path, job):
    """Writes docs/pictures/studio_*.jpg if GLOCAL_DOCS_PICTURES names that folder."""
    page = roomy.page
    roomy.tab({"style": "Style", "color": "Colour", "denoise": "Photo", "speech": "Speech", "graph": "Graph"}[job])
    page.click(f"#{job}-samples")
    if job == "graph":
        roomy.status("graph", "Click into it")
        page.fill("#graph-patch input[type=number]", "7")
        page.keyboard.press("Tab")
        page.fill("#graph-coords input", "0")
        page.keyboard.press("Enter")
        roomy.status("graph", "nearest patches of")
        box = page.locator("#graph-picture img").bounding_box()
        page.click("#graph-picture img", position={"x": 0.38 * box["width"], "y": 0.3 * box["height"]})
        roomy.status("graph", "nearest patches of (19")
    else:
        page.wait_for_selector(f"#{job}-{'recording' if job == 'speech' else 'photo'}-look figcaption")
        if job == "style":
            page.wait_for_selector("#style-painting-look figcaption")
            page.fill("#style-size textarea", "192")
        page.click(f"#{job}-run")
        roomy.status(job, "Done.")
    page.wait_for_timeout(2000)
    path = Path(os.environ.get("GLOCAL_DOCS_PICTURES", tmp_path)) / f"studio_{job}.jpg"
    page.screenshot(path=path, type="jpeg", quality=80, full_page=True)
    assert path.stat().st_size > 30_000

"""The page in a real browser."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from invaug.lab.errors import UserError
from invaug.lab.report.command import report_runs
from invaug.lab.report.watch import Server, watch_runs
from tests.support.browser import Browser
from tests.support.pages import HOSTILE, hostile_page, sweep, with_families, write_run

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def page_of_many(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with every kind of figure, pictures too."""
    folder = tmp_path_factory.mktemp("many")
    runs = sweep(folder)
    pixel = base64.b64encode(PIXEL).decode()
    image = f"data:image/png;base64,{pixel}"
    proposal = {"image": image, "op": "Rotate", "magnitude": 30.0, "loss": 1.5, "kept": True}
    evaluation = {
        "levels": {"Rotate": [{"level": i, "accuracy": 1 - i / 40} for i in range(31)]},
        "calibration": [{"confidence": 0.9, "accuracy": 0.8, "images": 10}],
        "classes": {"a": {"accuracy": 0.5, "images": 3}},
        "gallery": [{"class": "a", "original": image, "proposals": [proposal]}],
        "hardest": [{"class": "a", "original": image, "clean": 0.1, "seen": "b", **proposal}],
    }
    for run in runs[1:3]:  # the second is of the best experiment
        (run / "evaluation.json").write_text(json.dumps(evaluation))
    return report_runs(runs, folder / "report.html")[0].as_uri()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_every_figure_is_drawn_without_a_complaint(
    browser: Browser, page_of_many: str, width: int, scheme: str
) -> None:
    browser.open(page_of_many, width, scheme=scheme)
    drawn = browser.run(
        "return [...document.querySelectorAll('svg.figure')].map(s => {"
        "const b = s.getBBox(), r = s.getBoundingClientRect();"
        "return [b.width, b.height, r.width, s.querySelectorAll('polyline,rect,circle,path').length]})"
    )
    assert len(drawn) > 15
    assert all(min(size) > 0 for size in drawn)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert (
        browser.run("return performance.getEntriesByType('resource').filter(e => !/^data:/.test(e.name)).length") == 0
    )
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(246, 247, 249)", "dark": "rgb(15, 18, 22)"}[scheme]
    assert browser.complaints() == []


@pytest.fixture(scope="module")
def page_of_ten(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a run under ten named constraints."""
    run = write_run(tmp_path_factory.mktemp("ten") / "a", n_constraints=10)
    with_families(run, *(f"a family of name {i}" for i in range(10)))
    return report_runs([run])[0].as_uri()


CONTRASTS = """
const part = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const light = (e, key) => { const [r, g, b] = getComputedStyle(e)[key].match(/[0-9.]+/g).map(Number);
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
const paper = light(document.body, "backgroundColor");
return [...document.querySelectorAll("h1, .verdict, .answers dt, .answers dd")].map((e) => {
  const [low, high] = [light(e, "color"), paper].sort((a, b) => a - b); return (high + 0.05) / (low + 0.05); });
"""  # of the words at the top, as WCAG defines contrast


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
@pytest.mark.parametrize("which", ["page_of_many", "page_of_ten"])
def test_the_page_begins_with_its_answers(
    browser: Browser, request: pytest.FixtureRequest, which: str, width: int, scheme: str
) -> None:
    browser.open(request.getfixturevalue(which), width, scheme=scheme)
    tops = (
        "[...document.querySelectorAll('h1, .verdict, .answers, .tiles, h2')].map(e => e.getBoundingClientRect().top)"
    )
    assert browser.run(f"const tops = {tops}; return tops.every((top, i) => !i || tops[i - 1] < top)")
    assert "test images correctly" in browser.run("return document.querySelector('.verdict').innerText")
    assert "invaug " in browser.run("return document.querySelector('.answers code').innerText")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert min(browser.run(CONTRASTS)) >= 4.5
    outside = "e => e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1"
    assert (
        browser.run(f"return [...document.querySelectorAll('.answers dd, .answers code')].filter({outside}).length")
        == 0
    )


@pytest.mark.parametrize("which", ["page_of_many", "page_of_ten"])
def test_no_table_is_clipped_on_a_phone(browser: Browser, request: pytest.FixtureRequest, which: str) -> None:
    browser.open(request.getfixturevalue(which), 390)
    browser.run("document.querySelectorAll('details').forEach(box => { box.open = true; })")
    clipped = browser.run(
        "return [...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth)"
        ".map(box => box.querySelector('caption').textContent)"
    )
    assert clipped == []
    names = "[...document.querySelectorAll('table.stacked tbody tr:first-child td')].map(cell => cell.dataset.name)"
    assert "experiment" in browser.run(f"return {names}") or "constraint" in browser.run(f"return {names}")


def test_labels_can_be_read_on_a_phone(browser: Browser, page_of_many: str) -> None:
    browser.open(page_of_many, 390)
    sizes = browser.run(
        "return [...document.querySelectorAll('svg.figure text')].map(t => parseFloat(getComputedStyle(t).fontSize) *"
        "t.closest('svg').getBoundingClientRect().width / t.closest('svg').viewBox.baseVal.width)"
    )
    assert min(sizes) >= 11


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("which", ["page_of_many", "page_of_ten"])
def test_nothing_in_a_figure_is_outside_of_it(
    browser: Browser, request: pytest.FixtureRequest, which: str, width: int
) -> None:
    browser.open(request.getfixturevalue(which), width)
    outside = browser.run(
        "return [...document.querySelectorAll('svg.figure')].flatMap(s => {const v = s.viewBox.baseVal;"
        "return [...s.querySelectorAll('text,rect,circle,polyline')].filter(e => {const b = e.getBBox();"
        "const t = e.hasAttribute('transform'); return !t && (b.x < -1 || b.x + b.width > v.width + 1 || b.y < -3 ||"
        "b.y + b.height > v.height + 3)}).map(e => s.closest('figure').id + ': ' + e.outerHTML.slice(0, 90))})"
    )
    assert outside == []


def test_a_run_can_be_switched_off_and_on(browser: Browser, page_of_many: str) -> None:
    browser.open(page_of_many)
    there = "[...document.querySelectorAll('[data-run=\"1\"]')]"
    shown = f"return {there}.filter(e => getComputedStyle(e).display !== 'none').length"
    before = browser.run(shown)
    browser.run("document.querySelector('[data-toggle=\"1\"]').click()")
    assert before > 5
    assert browser.run(shown) == 0
    browser.run("document.querySelector('[data-toggle=\"1\"]').click()")
    assert browser.run(shown) == before


def test_values_are_read_by_pointer_and_by_keyboard(browser: Browser, page_of_many: str) -> None:
    browser.open(page_of_many)
    browser.run("document.querySelector('#gamma svg').scrollIntoView({block: 'center'})")
    box = browser.run(
        "const b = document.querySelector('#gamma svg').getBoundingClientRect(); return [b.x, b.y, b.width, b.height]"
    )
    browser.tell("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + box[2] * 0.95, y=box[1] + box[3] / 2)
    said = "return document.querySelector('#gamma .readout').textContent"
    assert browser.run(said).startswith("epoch 4: e0.6-0 0.3")
    browser.run("document.querySelector('#gamma svg').focus()")
    browser.tell("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft")
    assert browser.run(said).startswith("epoch 3: ")
    browser.run("document.querySelector('[data-toggle=\"1\"]').click(); document.querySelector('#gamma svg').focus()")
    browser.tell("Input.dispatchKeyEvent", type="keyDown", key="Home")
    assert browser.run(said).startswith("epoch 1: e1.0-0")
    browser.run("document.querySelector('#pareto circle').focus()")
    assert "TrivialAugment: " in browser.run("return document.querySelector('#pareto .readout').textContent")


def test_the_page_prints(browser: Browser, page_of_many: str) -> None:
    browser.open(page_of_many, scheme="dark")
    assert base64.b64decode(browser.tell("Page.printToPDF", printBackground=True)["data"]).startswith(b"%PDF")


@pytest.mark.parametrize("name", HOSTILE[:7] + HOSTILE[16:20], ids=ascii)
def test_a_hostile_name_does_nothing_in_a_browser(browser: Browser, tmp_path: Path, name: str) -> None:
    (tmp_path / "page.html").write_text(hostile_page(tmp_path / "runs", name), encoding="utf-8")
    browser.open((tmp_path / "page.html").as_uri())
    assert browser.run("return document.querySelectorAll('script, iframe, base, [onload], [onerror]').length") == 1
    assert (
        browser.run("return performance.getEntriesByType('resource').filter(e => !/^data:/.test(e.name)).length") == 0
    )
    assert browser.complaints() == []


# the live view


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Server]:
    with Server([write_run(tmp_path / "run", epochs=4, planned=9)], 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(url: str, host: str = "") -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Host": host} if host else {})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_server_has_a_page_and_a_stamp_for_its_own_machine_alone(live: Server) -> None:
    assert live.server_address[0] == "127.0.0.1"
    code, text = get(live.address)
    assert code == 200
    assert "connect-src 'self'" in text
    assert get(live.address + "config.toml")[0] == get(live.address + "../run/config.toml")[0] == 404
    assert get(live.address, host="evil.example")[0] == 403


def test_the_stamp_changes_with_the_record_and_a_lost_run_is_one_line(live: Server) -> None:
    folder = live.folders[0]
    before = get(live.address + "stamp")
    write_run(folder, epochs=5, planned=9)
    assert get(live.address + "stamp") != before
    (folder / "config.toml").unlink()
    code, said = get(live.address)
    assert (code, said.count("\n")) == (503, 1)


def test_a_port_that_is_taken_is_one_line(live: Server) -> None:
    with pytest.raises(UserError, match="choose another --port"):
        watch_runs(live.folders, live.server_port)


def wait_for(browser: Browser, script: str, wanted: str) -> None:
    for _ in range(200):
        if wanted in str(browser.run(f"return {script}")):
            return
        time.sleep(0.1)
    pytest.fail(f"{script} does not become {wanted}")


def test_the_open_page_waits_for_the_run_and_follows_it(browser: Browser, live: Server, tmp_path: Path) -> None:
    run, header = live.folders[0], "document.querySelector('header').textContent"
    run.rename(tmp_path / "later")
    browser.open(live.address)
    assert browser.run("return document.title") == "Waiting for run"
    wait_for(browser, "document.documentElement.dataset.state", "live")
    (tmp_path / "later").rename(run)
    wait_for(browser, header, "4 of 9 epochs")
    assert "Waiting" not in browser.run("return document.title")
    write_run(run, epochs=5, planned=9)
    wait_for(browser, header, "5 of 9 epochs")
    assert browser.complaints() == []

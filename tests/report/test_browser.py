"""The page in a real browser, wide and narrow; skipped where there is no chromium or no playwright."""

from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is not installed")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS.split())
        yield started
        started.close()


@pytest.mark.parametrize("width", [1280, 380])
@pytest.mark.parametrize("name", ["fedtopo", "crad", "comparison"])
def test_the_page_is_readable_at_any_width(browser, pages, made, name, width):
    target = made / f"Bericht ä {name}.html"
    target.write_text(pages[name], encoding="utf-8")
    told = []
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("requestfailed", lambda request: told.append(request.url))
    page.goto(target.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    boxes = page.evaluate(
        "[...document.querySelectorAll('figure svg')].map(one => one.getBoundingClientRect().toJSON())"
    )
    assert len(boxes) == pages[name].count("<figure>") > 0
    for box in boxes:
        assert box["width"] > 250
        assert box["height"] > 120
        assert box["left"] >= 0
        assert box["right"] <= width
    smallest = page.evaluate(
        "Math.min(...[...document.querySelectorAll('figure svg text')].map("
        "one => parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a || 99))"
    )
    assert smallest >= 7
    cells = page.evaluate(
        "[...document.querySelectorAll('table.results tr:last-child > *')].map("
        "one => [one.scrollWidth <= one.clientWidth + 1, one.offsetHeight, parseFloat(getComputedStyle(one).fontSize)])"
    )
    assert cells
    assert all(fits and 20 < height < 60 and size >= 13 for fits, height, size in cells)
    assert told == []
    page.close()


def test_the_page_follows_a_dark_setting_and_keeps_figures_on_white(browser, pages, made):
    target = made / "dark.html"
    target.write_text(pages["comparison"], encoding="utf-8")
    page = browser.new_page(color_scheme="dark")
    page.goto(target.as_uri())
    back, card = (
        page.evaluate(f"getComputedStyle(document.querySelector('{where}')).backgroundColor")
        for where in ("body", ".card")
    )
    assert back == "rgb(23, 24, 27)"
    assert card == "rgb(255, 255, 255)"
    page.close()

"""The tutorial's part in Dagster, followed in a real browser. What a user loses if this fails: what he sees and clicks.

`VELO_WRITE_DOCS=1` takes the document's pictures anew; read them before you keep them. On a machine that can't have a
browser, `VELO_NO_BROWSER=1` leaves the test out.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.docs.snippets import HOME, fences
from tests.orchestration.dev import Dev
from velo_dagster.store.reader import to_arrow

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/tutorial-dagster.md"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 180_000
# The reader's own folders stand in the pictures, not those of this machine.
RENAME = """(names) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) for (const [from, to] of names)
    texts.currentNode.data = texts.currentNode.data.replaceAll(from, to);
}"""


class Reader:
    """Somebody who follows the document: puts its files in place, looks, and clicks."""

    def __init__(self, dev: Dev, page: Page, folder: Path) -> None:
        self.dev, self.page, self.folder = dev, page, folder

    def open(self, path: str) -> None:
        self.page.goto(f"http://127.0.0.1:{self.dev.port}{path}")

    def sees(self, *texts: str) -> None:
        for text in texts:
            expect(self.page.get_by_text(text).first).to_be_visible()

    def picture(self, name: str) -> None:
        """As the document shows it; taken anew only when asked for, but there must be one."""
        kept = ROOT / "docs/images" / f"dagster-{name}.png"
        assert f"images/{kept.name}" in DOCUMENT.read_text()
        packages = str(Path(HOME).parent / "velo-dagster")
        self.page.evaluate(RENAME, [[str(self.folder), HOME], [sys.prefix, f"{packages}/.venv"], [str(ROOT), packages]])
        taken = self.page.screenshot(animations="disabled")
        if os.environ.get("VELO_WRITE_DOCS"):
            kept.write_bytes(taken)
        assert kept.exists()

    def writes(self, name: str, time: int = 0) -> None:
        """Put the document's file in place; `time` counts those of one name."""
        texts = [fence.text for fence in fences(DOCUMENT.read_text()) if fence.file == name]
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts[time])


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    if CHROMIUM is None and os.environ.get("VELO_NO_BROWSER"):
        pytest.skip("There is no Chromium on this machine, and VELO_NO_BROWSER says that there need be none.")
    assert CHROMIUM, "There is no Chromium: run deploy/setup.sh browser, or do without this test: VELO_NO_BROWSER=1."
    folder = tmp_path / "shop"
    folder.mkdir()
    dev = Dev(folder)
    for name in ("shop.sql", "data/orders-06-01.csv"):
        Reader.writes(Reader(dev, None, folder), name)  # type: ignore[arg-type]
    flags = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with dev, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = browser.new_page(viewport={"width": 1280, "height": 800}, timezone_id="UTC", locale="en-GB")
        page.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        yield Reader(dev, page, folder)
        browser.close()


def test_the_tutorial_in_a_browser(reader: Reader):
    # The sensor loads orders; users and spending wait, and nothing fails.
    reader.open("/locations/shop/asset-groups/shop/lineage")
    reader.sees("Materialized", "4 / 4 Passed")
    expect(reader.page.get_by_text("Never materialized")).to_have_count(2)
    reader.picture("waiting")
    reader.open("/assets/file/data_users_jsonl")
    reader.sees("File 'data/users.jsonl' does not exist", "missing")
    reader.picture("source")

    # A table, and one click.
    reader.open("/assets/orders")
    reader.sees("Every order, as the shop's files have it.", "decimal(18,2)", "shop.sql:4")
    reader.picture("orders")
    before = {run["runId"] for run in reader.dev.runs()}
    reader.page.get_by_role("button", name="Materialize").first.click()
    clicked = reader.dev.until(
        lambda: [run["runId"] for run in reader.dev.runs() if run["runId"] not in before], 60, "a click starts a run"
    )[0]
    assert reader.dev.ended(clicked) == "SUCCESS"
    reader.open(f"/runs/{clicked}")
    reader.sees("orders: unchanged, ")

    # The file turns up, and everything follows.
    reader.writes("data/users.jsonl")
    reader.open("/locations/shop/asset-groups/shop/lineage")
    expect(reader.page.get_by_text("Never materialized")).to_have_count(0)
    reader.dev.until(lambda: set(reader.dev.checks("spending").values()) == {"SUCCEEDED"}, 180, "spending is checked")
    # The page may have asked between two checks, and asks again only now and then.
    reader.page.reload()
    expect(reader.page.get_by_text("Passed")).to_have_count(3)
    reader.sees("2 / 2 Passed")
    reader.picture("loaded")

    # An increment, a broken one, and its repair from the partition view.
    reader.writes("data/orders-06-02.csv")
    reader.open("/assets/orders/increments?view=partitions")
    reader.sees("Materialized (1)")
    reader.writes("data/orders-06-03.csv")
    reader.sees("Failed (1)")
    failed = next(run["runId"] for run in reader.dev.runs() if run["status"] == "FAILURE")
    reader.open(f"/runs/{failed}")
    reader.sees("orders-06-03.csv:2")
    reader.picture("failed")
    reader.writes("data/orders-06-03.csv", 1)
    reader.open("/assets/orders/increments?view=partitions&partition=3")
    reader.page.get_by_role("button", name=re.compile("Materialize…")).click()
    reader.page.get_by_role("button", name="Launch 1 run").click()
    reader.open("/assets/orders/increments?view=partitions")
    reader.sees("Materialized (2)")
    reader.open("/assets/orders/increments?view=partitions&partition=3")
    reader.sees("velo/rows_changed")
    reader.picture("partitions")

    # Checks, without loading anything.
    reader.open("/assets/orders?view=checks")
    reader.page.get_by_role("button", name="Execute all").click()
    reader.sees("amounts_are_positive", "There is no such row.")
    reader.picture("checks")

    warehouse = reader.folder / ".velo/warehouse"
    assert sorted(to_arrow(warehouse / "orders", columns=["order_id"])["order_id"].to_pylist()) == [1, 2, 3, 4, 5]
    reader.dev.until(
        lambda: sorted(to_arrow(warehouse / "spending", columns=["orders"])["orders"].to_pylist()) == [1, 3],
        180,
        "spending follows",
    )

"""The page in a real browser. Needs Debian's packages chromium and chromium-driver, and selenium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from test_page import finished_run

from massmover.report import write_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no Chromium here: apt-get install chromium chromium-driver"
)

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium here: pip install selenium")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    return write_page([finished_run(folder / "run")], folder / "page.html").as_uri()


def show(browser: Any, address: str, *, width: int, dark: bool = False) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get(address)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_loads_without_error_and_fits(browser: Any, address: str, width: int, dark: bool) -> None:
    show(browser, address, width=width, dark=dark)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    charts = browser.find_elements("css selector", ".accuracy-chart")
    shown = [chart for chart in charts if chart.is_displayed()]
    assert len(shown) == 1 and shown[0].size["height"] > 200
    assert len(shown[0].find_elements("css selector", "path.line")) == 1
    assert len(shown[0].find_elements("css selector", "path.paper")) == 3
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, background[4:-1].split(", "))) < 60) == dark


def cards(browser: Any) -> list[str]:
    found = browser.find_elements("css selector", ".card")
    return [card.get_attribute("data-label") for card in found if card.is_displayed()]


def test_the_gallery_is_filtered_by_class_and_radius(browser: Any, address: str) -> None:
    show(browser, address, width=1280)
    assert sorted(cards(browser)) == ["1", "1", "2"]
    browser.find_element("css selector", '.chip[data-label="2"]').click()
    assert cards(browser) == ["2"]
    assert browser.find_element("id", "shown").text == "1 shown"
    browser.find_element("css selector", '.chip[data-label=""]').click()
    browser.find_element("css selector", '#radius-choice option[value="10"]').click()
    assert cards(browser) == ["1"]
    assert browser.get_log("browser") == []


def test_the_pointer_says_what_it_is_over_and_swaps_pictures(browser: Any, address: str) -> None:
    from selenium.webdriver import ActionChains

    show(browser, address, width=1280)
    dot = browser.find_elements("css selector", ".wide .accuracy-chart .tip:last-child")[0]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", dot)
    ActionChains(browser).move_to_element(dot).perform()
    assert "25.0%" in browser.find_element("id", "tip").text
    swap = browser.find_element("css selector", ".swap")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus()", swap)
    hidden = "return getComputedStyle(arguments[0].querySelector('.below')).transitionProperty"
    assert browser.execute_script(hidden, swap) == "opacity"
    arrows = browser.find_elements("css selector", ".plan .arrow")
    assert len(arrows) == 3


def test_another_confusion_table_can_be_chosen(browser: Any, address: str) -> None:
    show(browser, address, width=1280)
    tables = browser.find_elements("css selector", ".confusion")
    assert [table.is_displayed() for table in tables] == [False, True]
    browser.find_element("css selector", '#confusion-choice option[value="0"]').click()
    assert [table.is_displayed() for table in tables] == [True, False]

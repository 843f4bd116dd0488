"""The page in a real browser. Needs Debian's packages chromium and chromium-driver, and selenium."""

from __future__ import annotations

import csv
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_page import certified_run, finished_run
from test_report_flow import with_proofs
from test_standings import stronger_run

from massmover.evaluation.store import RunFolder
from massmover.report import write_page
from massmover.report.standings import write_standings

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
    return write_page([finished_run(folder / "run")], folder / "page.html", paper=True).as_uri()


@pytest.fixture(scope="module")
def bracket(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("bracket")
    return write_page([certified_run(folder / "run")], folder / "page.html").as_uri()


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("pages")
    names = [f"class number {label}" for label in range(10)]
    other = finished_run(
        folder / "two", attack="auto", model="a-model-with-a-rather-long-name", manifest={"class_names": names}
    )
    return write_page([finished_run(folder / "one"), other, *[other] * 6], folder / "page.html").as_uri()


def show(browser: Any, address: str, *, width: int, dark: bool = False, calm: bool = False) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    motion = {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, motion]})
    browser.get("about:blank")  # else an address that differs in its last part alone is not loaded again
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


# Which layers hold each of 5 x 40 points of a chart: a list for each column, from the left, of lists from the top.
INSIDE = """
const [chart, ...layers] = arguments, boxes = layers.map(layer => layer.getBBox());
const left = Math.min(...boxes.map(box => box.x)), right = Math.max(...boxes.map(box => box.x + box.width));
const top = Math.min(...boxes.map(box => box.y)), bottom = Math.max(...boxes.map(box => box.y + box.height));
const place = (low, high, share) => low + share * (high - low);
return [...Array(5).keys()].map(column => [...Array(40).keys()].map(row => {
  const point = chart.createSVGPoint();
  point.x = place(left, right, (column + .97) / 5); point.y = place(top, bottom, (row + .37) / 40);
  return layers.flatMap((layer, number) => layer.isPointInFill(point) ? [number] : []);
}));
"""


@pytest.mark.parametrize("width", [1280, 400])
def test_proved_unknown_and_broken_are_one_band(browser: Any, bracket: str, width: int) -> None:
    show(browser, bracket, width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    chart = next(c for c in browser.find_elements("css selector", ".chart.bracket") if c.is_displayed())
    kinds = ("proved", "unknown", "broken")
    layers = [chart.find_element("css selector", f".layer.{kind}") for kind in kinds]
    colours = [layer.value_of_css_property("fill") for layer in layers]
    assert len(set(colours)) == 3 and "rgb(0, 0, 0)" not in colours
    # They lie on each other without a gap: every point of the frame is in one of them, from the top in this order.
    columns = browser.execute_script(INSIDE, chart, *layers)
    for column in columns:
        assert all(len(point) == 1 for point in column)
        order = [point[0] for point in column]
        assert order == sorted(order, reverse=True)  # 2 is broken, 0 is proved
    assert len(columns) == 5 and any({point[0] for point in column} == {0, 1, 2} for column in columns)
    section = browser.find_element("css selector", ".bracket-section")
    assert "No image is both proved and broken" in section.text
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [1280, 400])
def test_each_image_shows_what_lies_between_proof_and_attack(browser: Any, bracket: str, width: int) -> None:
    from selenium.webdriver import ActionChains

    show(browser, bracket, width=width)
    chart = next(c for c in browser.find_elements("css selector", ".chart.between") if c.is_displayed())
    rows = chart.find_elements("css selector", ".image-row")
    parts = [[p.get_attribute("class") for p in row.find_elements("css selector", "rect")] for row in rows]
    broken, unknown, proved = "layer broken", "layer unknown", "layer proved"
    assert parts == [[broken], [unknown], [proved, unknown, broken], [proved]]  # images 0, 2, 1 and 3
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", rows[2])
    ActionChains(browser).move_to_element(rows[2]).perform()
    assert browser.find_element("id", "tip").text == "image 1, 1: proved up to 5, broken at 10"
    assert browser.get_log("browser") == []


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
    arrows = browser.find_elements("css selector", ".plan .arrow.tip")
    assert len(arrows) == 3


def test_another_confusion_table_can_be_chosen(browser: Any, address: str) -> None:
    show(browser, address, width=1280)
    tables = browser.find_elements("css selector", ".confusion")
    assert [table.is_displayed() for table in tables] == [False, True]
    browser.find_element("css selector", '#confusion-choice option[value="0"]').click()
    assert [table.is_displayed() for table in tables] == [True, False]


def until(true: Callable[[], Any]) -> Any:
    """What a condition gives once it holds; the page may take a moment to decode an image or write a file."""
    for _ in range(200):
        found = true()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it never came true")


def levels(browser: Any, canvas: Any) -> list[int]:
    """The red levels of a canvas, one a pixel of the image, read in the middle of each."""
    return list(
        browser.execute_script(
            "const canvas = arguments[0], scale = canvas.width / 28, found = [];"
            "const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
            "for (let y = 0; y < 28; y++) for (let x = 0; x < 28; x++)"
            "  found.push(data[4 * (Math.floor((y + .5) * scale) * canvas.width + Math.floor((x + .5) * scale))]);"
            "return found;",
            canvas,
        )
    )


def image_levels(browser: Any, image: Any) -> list[int]:
    """The same of a picture."""
    return list(
        browser.execute_script(
            "const canvas = document.createElement('canvas'); canvas.width = canvas.height = 28;"
            "const context = canvas.getContext('2d'); context.drawImage(arguments[0], 0, 0);"
            "return [...context.getImageData(0, 0, 28, 28).data].filter((_, place) => place % 4 === 0);",
            image,
        )
    )


def slide(browser: Any, slider: Any, value: int) -> None:
    browser.execute_script(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", slider, value
    )


def apart(first: list[int], second: list[int]) -> int:
    return max(abs(one - other) for one, other in zip(first, second, strict=True))


def test_the_slider_takes_an_image_to_its_break(browser: Any, address: str) -> None:
    show(browser, address, width=1280)
    stage = browser.find_element("id", "morph")
    assert until(lambda: "Seen as" in stage.text)
    slider, canvas = stage.find_element("css selector", "input"), stage.find_element("css selector", "canvas")
    number = stage.find_element("css selector", ".which").text.split()[-1]
    card = browser.find_element("css selector", f'.card[id^="image-{number}-"][data-first="yes"]')
    ends = [image_levels(browser, card.find_element("css selector", name)) for name in (".original", ".adversarial")]
    assert apart(*ends) > 100
    assert apart(levels(browser, canvas), ends[0]) <= 2
    slide(browser, slider, 500)
    half = levels(browser, canvas)
    assert apart(half, ends[0]) > 20 and apart(half, ends[1]) > 20
    cost = float(card.get_attribute("data-cost"))
    assert slider.get_attribute("aria-valuetext") == f"{cost / 2:.3g} of {cost:.3g} radius × pixels spent"
    assert "on the way" in stage.text
    slide(browser, slider, 1000)
    assert apart(levels(browser, canvas), ends[1]) <= 2
    assert "Taken for 8" in stage.text
    browser.get_log("browser")  # only that this test itself reads the canvas more than once


def test_the_slider_obeys_the_keyboard_and_plays(browser: Any, address: str) -> None:
    from selenium.webdriver import Keys

    show(browser, address, width=1280)
    stage = browser.find_element("id", "morph")
    assert until(lambda: "Seen as" in stage.text)
    slider = stage.find_element("css selector", "input")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert slider.get_attribute("value") == "1" and "on the way" in stage.text
    slider.send_keys(Keys.END)
    assert "Taken for 8" in stage.text
    stage.find_element("css selector", ".play").click()
    assert until(lambda: 0 < int(slider.get_attribute("value")) < 1000)
    until(lambda: slider.get_attribute("value") == "1000")
    assert stage.find_element("css selector", ".play").text == "play"
    before = stage.find_element("css selector", ".which").text
    stage.find_element("css selector", ".next").click()
    assert until(lambda: stage.find_element("css selector", ".which").text != before)


def test_a_picture_is_enlarged_by_click_and_by_key(browser: Any, address: str) -> None:
    from selenium.webdriver import ActionChains, Keys

    show(browser, address, width=1280)
    card = browser.find_element("css selector", ".card")
    picture = card.find_element("css selector", ".original")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", picture)
    picture.click()
    dialog = browser.find_element("id", "large")
    assert dialog.is_displayed() and until(lambda: "Taken for 8" in dialog.text)
    assert dialog.find_element("css selector", "canvas").size["width"] > 2.5 * picture.size["width"]
    assert "radius × 784" in dialog.text and "exact distance" in dialog.text
    first = dialog.find_element("id", "large-title").text
    dialog.find_element("css selector", ".next").click()
    assert dialog.find_element("id", "large-title").text != first
    ActionChains(browser).send_keys(Keys.ARROW_LEFT).perform()
    assert dialog.find_element("id", "large-title").text == first
    ActionChains(browser).send_keys(Keys.ESCAPE).perform()
    assert until(lambda: not dialog.is_displayed())
    button = card.find_element("css selector", ".enlarge")
    assert until(lambda: browser.switch_to.active_element == button)  # the way back is where one came from
    button.send_keys(Keys.ENTER)
    assert dialog.is_displayed()
    dialog.find_element("css selector", ".close").click()
    assert not dialog.is_displayed() and browser.get_log("browser") == []


def test_a_link_leads_to_its_example_whatever_is_hidden(browser: Any, comparison: str) -> None:
    show(browser, comparison, width=1280)
    hidden = [card for card in browser.find_elements("css selector", ".card") if not card.is_displayed()]
    assert hidden
    name = hidden[-1].get_attribute("id")
    show(browser, f"{comparison}#{name}", width=1280)
    assert browser.find_element("id", name).is_displayed()


@pytest.mark.parametrize("name", ["accuracy.csv", "images.csv", "report.json"])
def test_numbers_are_downloaded(browser: Any, address: str, tmp_path: Path, name: str) -> None:
    place = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", place)
    show(browser, address, width=1280)
    link = browser.find_element("css selector", f'a[download="{name}"]')
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
    link.click()
    file = tmp_path / name
    until(file.exists)
    if name == "accuracy.csv":
        lines = list(csv.DictReader(file.read_text().splitlines()))
        assert [line["accuracy"] for line in lines] == ["0.75", "0.5", "0.25"]
    else:
        assert file.stat().st_size > 200


def test_many_runs_fit_a_phone_and_what_is_cut_has_a_hint(browser: Any, comparison: str) -> None:
    show(browser, comparison, width=400)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 400
    boxes = [box for box in browser.find_elements("css selector", ".scroll") if box.is_displayed()]
    wide = [box for box in boxes if int(box.get_attribute("scrollWidth")) > int(box.get_attribute("clientWidth")) + 1]
    assert wide and len(wide) < len(boxes)
    for box in boxes:
        hint = browser.execute_script("return arguments[0].nextElementSibling", box)
        assert "more-aside" in hint.get_attribute("class") and hint.is_displayed() == (box in wide)
    assert browser.get_log("browser") == []
    # Outside of those boxes nothing sticks out of the page.
    outside = browser.execute_script(
        "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') && !e.closest('svg') &&"
        " e.getBoundingClientRect().width > 0 && e.getBoundingClientRect().right > 401)"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert outside == []


def test_eight_runs_have_eight_colours(browser: Any, comparison: str) -> None:
    show(browser, comparison, width=1280)
    strokes = browser.execute_script(
        "return [...document.querySelectorAll('.wide .accuracy-chart path.line')].map(e => getComputedStyle(e).stroke)"
    )
    assert len(strokes) == len(set(strokes)) == 8
    assert "the attacks differ" in browser.find_element("id", "unlike").text


def test_without_script_the_content_is_there(browser: Any, address: str) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, address, width=1280)
        assert len([card for card in browser.find_elements("css selector", ".card") if card.is_displayed()]) == 3
        assert not browser.find_element("id", "morph").is_displayed()
        assert not any(button.is_displayed() for button in browser.find_elements("css selector", ".enlarge"))
        assert browser.find_element("css selector", "#downloads a").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("width", [1280, 400])
def test_standings_fit_and_sort(browser: Any, tmp_path: Path, width: int) -> None:
    folders = [finished_run(tmp_path / "weak"), stronger_run(tmp_path / "strong")]
    show(browser, write_standings(folders, tmp_path / "standings.html").as_uri(), width=width)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width

    def names() -> list[str]:
        return [cell.text.split()[0] for cell in browser.find_elements("css selector", ".standings tbody th")]

    assert names() == ["strong", "weak"]
    column = browser.find_elements("css selector", ".standings .sort")[3]  # the larger radius
    head = column.find_element("xpath", "..")
    for direction, order in (("descending", ["strong", "weak"]), ("ascending", ["weak", "strong"])):
        browser.execute_script("arguments[0].click()", column)
        assert head.get_attribute("aria-sort") == direction and names() == order
    browser.execute_script("arguments[0].click()", browser.find_elements("css selector", ".standings .sort")[0])
    assert names() == ["strong", "weak"] and head.get_attribute("aria-sort") == "none"


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("flights")
    return write_page([with_proofs(folder / "run")], folder / "page.html").as_uri()


def film_of(browser: Any) -> tuple[Any, Any, Any]:
    """The first card, its canvas and its button, once the film is there."""
    card = browser.find_element("css selector", ".card")
    canvas, button = (card.find_element("css selector", f".motion {name}") for name in ("canvas", ".play"))
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    until(button.is_displayed)
    return card, canvas, button


def test_a_card_shows_mass_half_way_plays_and_pauses(browser: Any, flights: str) -> None:
    from selenium.webdriver import Keys

    show(browser, flights, width=1280)
    card, canvas, button = film_of(browser)
    ends = [image_levels(browser, card.find_element("css selector", name)) for name in (".original", ".adversarial")]
    assert canvas.is_displayed() and canvas.size["width"] > 100
    assert button.text == "play" and button.get_attribute("aria-label").startswith("play the flight of image ")
    half = levels(browser, canvas)
    # the second move, half of pixel (10, 10) to its right, is only in the proof: it is on its way, between two pixels
    assert half[10 * 28 + 10] < ends[0][10 * 28 + 10] - 20
    button.send_keys(Keys.ENTER)
    assert button.text == "pause" and button.get_attribute("aria-label").startswith("pause the flight")
    until(lambda: apart(levels(browser, canvas), ends[0]) <= 2)  # round it goes, and rests at both ends
    until(lambda: apart(levels(browser, canvas), ends[1]) <= 2)
    button.send_keys(Keys.SPACE)
    assert button.text == "play" and not browser.find_element("id", "large").is_displayed()
    still = levels(browser, canvas)
    time.sleep(0.3)
    assert levels(browser, canvas) == still
    browser.get_log("browser")  # only that this test itself reads the canvas more than once


def test_who_asks_for_less_motion_gets_stills(browser: Any, flights: str) -> None:
    show(browser, flights, width=1280, calm=True)
    card, canvas, button = film_of(browser)
    ends = [image_levels(browser, card.find_element("css selector", name)) for name in (".original", ".adversarial")]
    assert button.text == "step"
    half = levels(browser, canvas)
    time.sleep(0.3)
    assert levels(browser, canvas) == half
    button.click()  # three quarters
    assert levels(browser, canvas) != half and button.text == "step"
    button.click()
    assert apart(levels(browser, canvas), ends[1]) <= 2
    button.click()
    assert apart(levels(browser, canvas), ends[0]) <= 2
    stage = browser.find_element("id", "morph")
    slider, play = stage.find_element("css selector", "input"), stage.find_element("css selector", ".play")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", play)
    assert play.text == "step" and slider.get_attribute("value") == "0"
    play.click()
    assert slider.get_attribute("value") == "250" and "on the way" in stage.text
    browser.get_log("browser")


def test_arrows_say_which_way_mass_moved(browser: Any, flights: str) -> None:
    show(browser, flights, width=1280)
    card = browser.find_element("css selector", ".card")
    field = card.find_element("css selector", '[aria-label^="Which way"]')
    arrows = field.find_elements("css selector", ".arrow")
    colours = {arrow.value_of_css_property("fill") for arrow in arrows}
    assert len(arrows) == 2 and len(colours) == 2 and "rgb(0, 0, 0)" not in colours  # down right, and right
    assert [figure.text.split("\n")[0] for figure in card.find_elements("css selector", "figure")][4].startswith(
        "movement"
    )


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of photographs: the same run, its images 224 pixels a side and in colour."""
    folder = tmp_path_factory.mktemp("photographs")
    run = RunFolder(finished_run(folder / "run", manifest={"data": {"checksum": "d" * 64, "shape": [3, 224, 224]}}))
    arrays = dict(np.load(run.examples))
    for name in ("original", "adversarial"):
        arrays[name] = np.tile(arrays[name], (1, 3, 8, 8))
    np.savez(run.examples, **arrays)
    return write_page([run.path], folder / "page.html").as_uri()


@pytest.mark.parametrize("width", [1280, 400])
def test_photographs_are_shown_as_large_as_they_are(browser: Any, photographs: str, width: int) -> None:
    show(browser, photographs, width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    card = browser.find_element("css selector", ".card")
    panels = [panel for panel in card.find_elements("css selector", ".panel:not(.below)") if panel.is_displayed()]
    assert len(panels) == 6
    least = 224 if width == 1280 else 140
    assert all(panel.size["width"] >= least and panel.size["height"] >= least for panel in panels)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", panels[0])
    panels[0].click()
    dialog = browser.find_element("id", "large")
    assert dialog.is_displayed() and until(lambda: "Taken for 8" in dialog.text)
    assert dialog.find_element("css selector", "canvas").size["width"] >= min(440, width - 70)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.get_log("browser") == []

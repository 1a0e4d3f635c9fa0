"""Every page in headless Chromium: without errors, at both widths, in light and dark."""

import time

import pytest

WIDTHS = (1400, 390)
SERIOUS = ("serious", "critical")
BROKEN_IMAGES = """
const images = [...document.images];
images.forEach(image => { image.loading = 'eager'; });
await Promise.all(images.map(image => image.decode().catch(() => {})));
return images.filter(image => !image.naturalWidth).map(image => image.src);
"""
# Code, tables and formulas may scroll by themselves. Nothing else may be wider than the page, and
# neither may what scrolls.
OVERFLOW = """
const width = document.documentElement.clientWidth;
const scrolls = 'pre, .pst-scrollable-table-container, .formula';
return [...document.querySelectorAll('body *')]
    .filter(element => element.getBoundingClientRect().right > width + 1)
    .filter(element => !element.parentElement.closest(scrolls) && element.checkVisibility())
    .filter(element => element.closest('main') || document.documentElement.scrollWidth > width)
    .slice(0, 5).map(element => element.outerHTML.slice(0, 120));
"""
# A table that is wider than the page scrolls, by the keyboard too, also where it is folded.
CLIPPED = """
document.querySelectorAll('main details').forEach(details => { details.open = true; });
return [...document.querySelectorAll('main table')]
    .filter(table => table.scrollWidth > table.parentElement.clientWidth + 1)
    .filter(table => getComputedStyle(table.parentElement).overflowX !== 'auto')
    .slice(0, 5).map(table => table.outerHTML.slice(0, 200));
"""
# Names in tables are not broken in the middle.
BROKEN_NAMES = """
return [...document.querySelectorAll('main td code, main td:first-child')]
    .filter(cell => /^[\\w."'=]+$/.test(cell.textContent.trim()) && cell.checkVisibility())
    .filter(cell => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        const line = 2 * parseFloat(getComputedStyle(cell).fontSize);
        return range.getBoundingClientRect().height > line;
    })
    .slice(0, 5).map(cell => cell.textContent);
"""
FROM_ELSEWHERE = """
return performance.getEntriesByType('resource').map(entry => entry.name)
    .filter(name => !name.startsWith(location.origin) && !name.startsWith('data:'));
"""
AXE = """
const [rules, done] = arguments;
const options = {resultTypes: ['violations']};
if (rules) options.runOnly = {type: 'rule', values: rules};
axe.run(document, options).then(found => done(found.violations.map(violation => ({
    rule: violation.id, impact: violation.impact,
    nodes: violation.nodes.slice(0, 3).map(node => node.html.slice(0, 160))
}))), error => done([{rule: String(error), impact: 'critical', nodes: []}]));
"""


def resize(browser, width: int) -> None:
    """Give the page a width, which a headless window alone would not go below 500 px."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )


def colours(browser, theme: str) -> None:
    """Show the page in light or dark, as the theme's button does, and at once."""
    browser.execute_script(
        "document.head.insertAdjacentHTML('beforeend',"
        "    '<style>* { transition: none !important; }</style>');"
        "document.documentElement.dataset.mode = document.documentElement.dataset.theme = "
        "arguments[0]", theme
    )  # fmt: skip


def serious(browser, rules: list[str] | None = None) -> list[dict[str, object]]:
    found = browser.execute_async_script(AXE, rules)
    return [violation for violation in found if violation["impact"] in SERIOUS]


def test_page(browser, address, axe, page):
    resize(browser, WIDTHS[0])
    browser.get_log("browser")
    browser.get(f"{address}/{page}")
    assert not [e["message"] for e in browser.get_log("browser") if e["level"] == "SEVERE"]
    assert not browser.execute_script(f"return (async () => {{{BROKEN_IMAGES}}})()")
    assert not browser.execute_script(FROM_ELSEWHERE)
    browser.execute_script(axe)
    colours(browser, "light")
    assert not serious(browser)
    colours(browser, "dark")
    assert not serious(browser, ["color-contrast"])
    for width in WIDTHS:
        resize(browser, width)
        assert not browser.execute_script(OVERFLOW), width
        if not page.startswith(("gallery/", "reference/generated/")):  # what code prints
            assert not browser.execute_script(CLIPPED), width
        assert not browser.execute_script(BROKEN_NAMES), width


NARROW = ("index.html", "measured.html", "reference/generated/pymc_coresets.build_coreset.html")


@pytest.mark.parametrize("address_of", NARROW)
def test_narrow_page_is_accessible(browser, address, axe, address_of):
    resize(browser, WIDTHS[1])
    browser.get(f"{address}/{address_of}")
    browser.execute_script(axe)
    assert not serious(browser)


def wait(browser, script: str, seconds: float = 30.0):
    """Run a script until it returns something."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if found := browser.execute_script(script):
            return found
        time.sleep(0.2)
    return pytest.fail(f"nothing was returned within {seconds:g} s by {script}")


def test_search_finds_build_coreset(browser, address):
    resize(browser, WIDTHS[0])
    browser.get(f"{address}/search.html?q=build_coreset")
    found = wait(
        browser,
        "return [...document.querySelectorAll('#search-results li a')].map(link => link.href)",
    )
    assert any("reference/generated/pymc_coresets.build_coreset.html" in link for link in found)


def test_code_is_copied(browser, address):
    resize(browser, WIDTHS[0])
    grant = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": address}
    browser.execute_cdp_cmd("Browser.grantPermissions", grant)
    browser.get(f"{address}/get-started.html")
    wait(browser, "return document.querySelectorAll('button.copybtn').length")
    button = browser.execute_script("return document.querySelector('button.copybtn')")
    chains = pytest.importorskip("selenium.webdriver").ActionChains(browser)
    chains.move_to_element(button).click().perform()  # a click of the mouse: scripts may not copy
    copied = wait(browser, "return navigator.clipboard.readText()")
    assert copied.strip() == "pip install pymc-coresets"

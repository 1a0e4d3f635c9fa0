"""The site, served to a headless Chromium: needs `make docs`, Chromium, its driver and axe-core."""

import shutil
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs/_build/html"
AXE = ROOT / ".venv-docs/node/node_modules/axe-core/axe.min.js"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def pages() -> list[str]:
    """Return the pages of the site, as addresses below its root; none where it is not built."""
    found = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    return [page for page in found if not page.startswith("_static/")]  # templates of the theme


def pytest_generate_tests(metafunc):
    """Run what asks for a page on each of them."""
    if "page" in metafunc.fixturenames:
        missing = pytest.mark.skip(reason="the site is not built: make docs")
        metafunc.parametrize("page", pages() or [pytest.param("", marks=missing)])


@pytest.fixture(scope="session")
def site() -> Path:
    if not pages():
        pytest.skip("the site is not built: make docs")
    return SITE


@pytest.fixture(scope="session")
def address(site) -> Iterator[str]:
    """Serve the site."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def browser(site, tmp_path_factory):
    """Start Chromium, with a profile of its own."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium: make docs-test")
    found = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if None in found.values():
        pytest.skip("Chromium or its driver is missing: make docs-tools")
    options = webdriver.ChromeOptions()
    options.binary_location = found["chromium"]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    profile = tmp_path_factory.mktemp("chromium")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path=found["chromedriver"])
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(120)
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def axe() -> str:
    """Return the source of axe-core."""
    if not AXE.exists():
        pytest.skip("axe-core is missing: make docs-tools")
    return AXE.read_text()


@pytest.fixture
def extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Sphinx find the extensions of the documentation."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "docs/_ext")])

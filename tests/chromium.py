"""A headless Chromium for the tests that look at pages as a reader does; it cannot reach the network."""

import os
import shutil
import time

import psutil
import pytest

BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
NO_BROWSER = "no Chromium in PATH; install one and run the tests again, on Debian and Ubuntu with: apt install chromium"
NO_PLAYWRIGHT = "playwright, which drives the browser, is not installed; get it with: pip install playwright"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    missing = []
    if not any(map(shutil.which, BROWSERS)):
        missing.append(NO_BROWSER)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing.append(NO_PLAYWRIGHT)
    if missing:
        # A machine of one's own may do without; CI, which promises that the course works in a browser, may not.
        (pytest.fail if os.environ.get("CI") else pytest.skip)("; ".join(missing))

    earlier = psutil.Process().children(recursive=True)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=next(filter(None, map(shutil.which, BROWSERS))),
            args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],  # no way out into the network
            env={**os.environ, "TMPDIR": str(tmp_path_factory.mktemp("chromium"))},  # it may leave a file behind
        )
        yield chromium
        started = set(psutil.Process().children(recursive=True)) - set(earlier)
        chromium.close()
    assert_gone(started, seconds=30)


def assert_gone(processes, seconds):
    """Wait until none of these processes is left; end those that are, and fail."""
    deadline = time.monotonic() + seconds
    while (left := list(filter(is_alive, processes))) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        process.kill()
    assert not left, f"processes are left after {seconds} s"


def is_alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

"""A real browser without a screen for the tests of pages, and what they need to look at them."""

import io
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

INSTALL = "no Chromium was found: install one (Debian: apt-get install chromium chromium-driver; or set $CHROMIUM)"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
    "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--hide-scrollbars", "--force-device-scale-factor=1",
)  # fmt: skip
SIZE = {"width": 600, "height": 320}
PATIENCE = 150.0  # s: a software renderer on a busy machine is slow
HARMLESS = ("Unable to preventDefault inside passive event listener",)  # viser's, whenever something is dragged


def find_chromium() -> str | None:
    return next(filter(None, (shutil.which(name) for name in (os.environ.get("CHROMIUM", ""), *NAMES) if name)), None)


@contextmanager
def browser() -> Iterator[Any]:
    """A browser of Playwright; the test is skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright, to test pages")
    path = find_chromium()
    if path is None:
        pytest.skip(INSTALL)
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield chromium
        finally:
            chromium.close()


class Tab:
    """A page that is open, and what went wrong on it: errors on its console, and requests to the network."""

    def __init__(self, chromium: Any, address: str, offline: bool = False) -> None:
        self.context = chromium.new_context(viewport=SIZE)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        if offline:
            self.context.set_offline(True)
            self.page.route("**/*", self._refuse)
        self.page.set_default_timeout(1000.0 * PATIENCE)
        self.page.goto(f"{address}?fixedDpr=1")  # or viser draws coarsely where drawing is slow
        self.page.add_style_tag(
            content="[class*=Notifications-root] { display: none }"
        )  # "software rendering" and such

    def _heard(self, message: Any) -> None:
        if message.type == "error" and not any(text in message.text for text in HARMLESS):
            self.errors.append(message.text)

    def _refuse(self, route: Any) -> None:
        if route.request.url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            self.requests.append(route.request.url)
            route.abort()

    def __enter__(self) -> "Tab":
        return self

    def __exit__(self, *error: object) -> None:
        self.context.close()

    @property
    def box(self) -> dict[str, float]:
        """Where the canvas is on the page, pixels."""
        return self.page.locator("canvas").first.bounding_box()

    def picture(self) -> np.ndarray:
        """The canvas: uint8 [height, width, 3]; what lies over it (messages) is there, too."""
        return pixels(self.page.screenshot(clip={**self.box, "width": self.box["width"] - 2.0}))

    def settled(self) -> np.ndarray:
        """The canvas when it does not change any more."""
        last, end = self.picture(), time.monotonic() + PATIENCE
        while True:
            self.page.wait_for_timeout(400)
            now = self.picture()
            if now.shape == last.shape and now.std() > 1.0 and np.abs(now.astype(int) - last).max() <= 2:
                return now
            assert time.monotonic() < end, "the page does not come to rest"
            last = now

    def place(self, name: str) -> Any:
        """A control of the page, by its label."""
        return self.page.get_by_text(name, exact=True).first

    def slider(self, name: str) -> Any:
        """The thumb of a slider, which takes keys."""
        row = self.place(name).locator("xpath=ancestor::*[.//*[@role='slider']][1]")
        return row.get_by_role("slider").first


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)


def pixels(png: bytes) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def project(camera: Any, box: dict[str, float], points: np.ndarray) -> np.ndarray:
    """Where points [n, 3] (m) are on the canvas, pixels [n, 2], by the camera that viser reports: x to the right, y
    down, z forward."""
    turn = Rotation.from_quat(np.roll(camera.wxyz, -1)).as_matrix()
    x, y, z = ((points - camera.position) @ turn).T
    focal = box["height"] / 2.0 / np.tan(camera.fov / 2.0)
    return np.stack([box["width"] / 2.0 + focal * x / z, box["height"] / 2.0 + focal * y / z], 1)


def blob(picture: np.ndarray, color: str) -> np.ndarray:
    """The center of all pixels of one pure colour (red, green, blue), in all its shades: [2], x and y."""
    channels = picture.astype(float)
    one = ["red", "green", "blue"].index(color)
    rest = np.delete(channels, one, axis=2).max(2)
    rows, columns = np.nonzero(channels[..., one] - rest > 25.0)
    assert len(rows) > 10, f"nothing {color} is in the picture"
    return np.array([columns.mean() + 0.5, rows.mean() + 0.5])


def compare(picture: np.ndarray, file: Path) -> None:
    """The picture looks like the one in the file, blurred a little; BACKDRIVE_BASELINES=write writes it there."""
    from PIL import Image

    small = Image.fromarray(picture).resize((240, 150), Image.Resampling.BOX)
    if os.environ.get("BACKDRIVE_BASELINES") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        small.save(file, quality=92, subsampling=0)
    blurred = [x.resize((96, 60), Image.Resampling.BOX) for x in (small, Image.open(file).convert("RGB"))]
    difference = np.abs(np.subtract(*(np.asarray(x, dtype=float) for x in blurred))).mean(2)
    assert difference.mean() < 1.0, f"{file.name}: on average {difference.mean():.2f} of 255 from what it was"
    assert difference.max() < 40.0, f"{file.name}: {difference.max():.0f} of 255 from what it was, at one place"

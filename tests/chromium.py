"""A page in headless Chromium, over its DevTools pipe: https://chromedevtools.github.io/devtools-protocol/."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "chrome-headless-shell")
VARIABLE = "TIPCHAIN_CHROMIUM"
TIMEOUT_S = 60.0
KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    " ": 32,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "End": 35,
    "Home": 36,
}


def find() -> str | None:
    """Return the browser: what TIPCHAIN_CHROMIUM names, else the first of the usual names that is installed."""
    return next((found for name in (os.environ.get(VARIABLE), *NAMES) if name and (found := shutil.which(name))), None)


needed = pytest.mark.skipif(
    find() is None, reason=f"no Chromium is installed ({', '.join(NAMES)}; or name it in {VARIABLE})"
)
"""A mark of tests that want the fixture ``browser``; nothing here installs one (Debian: ``apt-get install chromium``)."""


class Page:
    """One page of a browser of its own; close it."""

    def __init__(self, browser: str, profile: Path) -> None:
        commands, answers = os.pipe(), os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; bash puts them there.
        start = f'exec 3<&{commands[0]} 4>&{answers[1]}; exec "$@"'
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", start, "bash", browser, *options, "about:blank"],
            pass_fds=(commands[0], answers[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands[0])
        os.close(answers[1])
        self._to, self._from = commands[1], answers[0]
        self._kept, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = next(one for one in self.send("Target.getTargets")["targetInfos"] if one["type"] == "page")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        for end in (self._to, self._from):
            os.close(end)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, and return its result; events that come in between are kept.

        Raises:
            RuntimeError: the command failed, or the browser ended or did not answer.
        """
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)

    def wait(self, method: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not any(one.get("method") == method for one in self.events):
            self.events.append(self._read(deadline))

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._kept:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            given = os.read(self._from, 2**16) if ready else b""
            if not given:
                raise RuntimeError("Chromium ended" if ready else f"Chromium gave no answer in {TIMEOUT_S:g} s")
            self._kept += given
        text, _, self._kept = self._kept.partition(b"\0")
        return dict(json.loads(text))

    def open(self, path: Path, *, scripts: bool = True, **media: str) -> None:
        """Open a file, with scripts or without, and media features such as ``prefers_color_scheme="dark"``."""
        self.events.clear()
        self.send("Emulation.setScriptExecutionDisabled", value=not scripts)
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.send("Emulation.setEmulatedMedia", features=features)
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.wait("Page.loadEventFired")

    def size(self, width: int, height: int) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def run(self, script: str) -> Any:
        """Return what a JavaScript expression comes to, as JSON has it.

        Raises:
            RuntimeError: it threw.
        """
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press keys that have a name, one after the other, as a keyboard does."""
        for key in keys:
            text = {"Enter": "\r", " ": " "}.get(key, "")
            event: Mapping[str, Any] = {"key": key, "windowsVirtualKeyCode": KEYS[key], "text": text}
            self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **event)
            self.send("Input.dispatchKeyEvent", type="keyUp", **{**event, "text": ""})

    def write(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def complaints(self) -> list[str]:
        """Return what the console has, what was thrown, and what was asked of the network since the page was opened."""
        self.run("0")  # what is on its way comes first
        found = []
        for one in self.events:
            params, method = one.get("params", {}), one.get("method", "")
            if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                found.append(f"{method}: {json.dumps(params)[:500]}")
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("file:", "data:")):
                    found.append(f"asked for {url}")
        return found

    def files(self) -> list[str]:
        urls = [
            one["params"]["request"]["url"] for one in self.events if one.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in urls if url.startswith("file:")]

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a screenshot: of what is seen, or of the whole page."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


CHARTS_THAT_DO_NOT_FIT = """
(() => {
  const room = document.querySelector("main").getBoundingClientRect();
  const charts = [...document.querySelectorAll("figure")].filter(one => one.checkVisibility());
  const parts = charts.flatMap(one => [...one.querySelectorAll("text, path, rect")]);
  return parts.length < 50 ? ["no charts"] : parts.filter(one => {
    const box = one.getBoundingClientRect();
    return box.left < room.left || box.right > room.right || (one.localName === "text" && box.height < 11);
  }).map(one => one.outerHTML.slice(0, 120));
})()
"""
"""What of a page's charts is outside the page, or too small to read."""
CONTRAST = """
(() => {
  const pen = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (color) => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = color; pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const light = (color) => {
    const parts = color.slice(0, 3).map(one => (one /= 255) <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4);
    return .2126 * parts[0] + .7152 * parts[1] + .0722 * parts[2];
  };
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const color = rgba(getComputedStyle(one).backgroundColor);
      if (color[3] === 255) return color;
    }
  };
  let worst = 99, who = "";
  for (const one of document.querySelectorAll("body *")) {
    if (!one.checkVisibility() || ![...one.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    const style = getComputedStyle(one), inside = one.closest("svg");
    if (one.closest(".rolled .sign")) continue;  // a number says the same beside it
    const [high, low] = [light(rgba(inside ? style.fill : style.color)), light(behind(one))].sort((a, b) => b - a);
    const found = (high + .05) / (low + .05);
    if (found < worst) { worst = found; who = one.outerHTML.slice(0, 120); }
  }
  return {worst, who, paper: getComputedStyle(document.body).backgroundColor};
})()
"""
"""The least contrast of any text that is seen with what is behind it (https://www.w3.org/TR/WCAG21/#contrast-minimum)."""

"""A headless Chromium driven over its debugging pipe, to look at pages as people do."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-pipe",
)  # fmt: skip


@dataclass
class Browser:
    """One tab. ``events`` gathers what the page reported, by method name."""

    writer: int
    reader: Any
    session: str = ""
    last: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events on the way are kept."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.last:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def receive(self) -> dict[str, Any]:
        """The next message of the browser."""
        data = bytearray()
        while (byte := self.reader.read(1)) != b"\0":
            assert byte, "the browser ended"
            data += byte
        return json.loads(data)

    def open(self, page: Path, width: int, height: int = 900, scheme: str = "light") -> None:
        """Load a file at a window width in a colour scheme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=2, mobile=width < 600,
        )  # fmt: skip
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.receive())

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return answer["result"].get("value")

    def seen(self, *methods: str) -> list[dict[str, Any]]:
        """Parameters of the events with one of these names."""
        return [e["params"] for e in self.events if e.get("method") in methods]

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start Chromium with an empty profile; end it afterwards."""
    to_browser, from_us = os.pipe()
    from_browser, to_us = os.pipe()

    command = [PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    pipes = f'exec "$@" 3<&{to_browser} 4>&{to_us}'  # Chromium reads descriptor 3, writes 4
    process = subprocess.Popen(
        ["bash", "-c", pipes, "bash", *command], pass_fds=(to_browser, to_us),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_browser)
    os.close(to_us)
    try:
        with os.fdopen(from_browser, "rb") as reader:
            tab = Browser(from_us, reader)
            target = tab.call("Target.createTarget", url="about:blank")["targetId"]
            attached = tab.call("Target.attachToTarget", targetId=target, flatten=True)
            tab.session = attached["sessionId"]
            for domain in ("Page", "Network", "Runtime", "Log"):
                tab.call(f"{domain}.enable")
            yield tab
    finally:
        process.terminate()
        process.wait(timeout=20)
        os.close(from_us)

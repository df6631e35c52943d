"""A headless Chromium, driven through the pipe of its DevTools protocol: no driver, no further package."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 180  # seconds, for machines with much else to do
LEAVING = ("navigated or closed", "context was destroyed", "Cannot find context", "Cannot find default")
READY = "document.documentElement?.dataset.ready === 'yes'"


class RefusedCommandError(Exception):
    """The browser did not carry out a command; the message says why."""


def find_browser():
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser with one page; it keeps the page's console messages, errors and requests."""

    def __init__(self, executable, folder):
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()

        def wire():  # the browser reads commands from 3 and writes answers to 4
            above = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
            for number, end in enumerate(above, start=3):  # the ends may be 3 or 4 themselves
                os.dup2(end, number)

        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ]
        options += ["--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        self.process = subprocess.Popen(  # noqa: S603
            [executable, *options, "about:blank"],
            preexec_fn=wire,  # noqa: PLW1509
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._buffer = b""
        self._number = 0
        self._attached = None
        self.events = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._attached = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self):
        try:
            self._attached = None
            self.send("Browser.close")
            self.process.wait(10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self._in)
        os.close(self._out)

    def send(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._attached:
            message["sessionId"] = self._attached
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RefusedCommandError(answer["error"]["message"])
                return answer["result"]
            self.events.append(answer)

    def _receive(self, deadline):
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise TimeoutError
            chunk = os.read(self._in, 1 << 20)
            if not chunk:
                raise TimeoutError
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path, *, width=1100, height=900, dark=False, ready=READY):
        """Open a page and wait until it is ready: by default until its script says so."""
        self.events.clear()
        self.resize(width, height)
        self.scheme("dark" if dark else "light")
        self.send("Page.navigate", url=path.as_uri())
        self.until(ready)

    def resize(self, width, height):
        mobile = width < 600
        scale = 2 if mobile else 1
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=mobile,
        )

    def scheme(self, scheme, media=""):
        self.send(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def run(self, script):
        """Return the value of an expression, which may be a promise."""
        result = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, condition):
        deadline, pause = time.monotonic() + PATIENCE, 0.02
        while not self._holds(condition):
            assert time.monotonic() < deadline, f"never came true: {condition}\n{self.complaints()}"
            time.sleep(pause)
            pause = min(1.3 * pause, 0.2)  # asking the page takes time, too

    def _holds(self, condition):
        try:
            return self.run(condition)
        except RefusedCommandError as refused:
            if not any(word in str(refused) for word in LEAVING):
                raise
            return False  # the page is being replaced by the next one

    def reload(self, ready=READY):
        """Load the page again and wait until it is ready, and not still the one of before."""
        self.run("window.beforeReload = true")
        self.send("Page.reload")
        self.until(f"!window.beforeReload && {ready}")

    def set(self, selector, value, event="input"):
        """Give a control a value, as a person would."""
        self.run(f"""(() => {{
            const it = document.querySelector({json.dumps(selector)});
            it.value = {json.dumps(value)};
            it.dispatchEvent(new Event({json.dumps(event)}, {{bubbles: true}}));
        }})()""")

    def texts(self, selector):
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")

    def complaints(self):
        """All errors, warnings and uncaught exceptions of the page."""
        said = []
        for event in self.events:
            method, values = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                said.append(values["exceptionDetails"])
            elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
                said.append(values["args"])
            elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
                said.append(values["entry"])
        return said

    def requests(self):
        """The addresses that the page asked for, itself left out."""
        sent = [
            e["params"]["request"]["url"]
            for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in sent[1:] if not url.startswith(("data:", "blob:"))]

    def picture(self, path, *, start="body", height=None):
        """Take a picture of the page from an element on, to its end or of a given height."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        top = self.run(f"document.querySelector({json.dumps(start)}).getBoundingClientRect().top + scrollY")
        clip = {
            "x": 0,
            "y": top,
            "width": size["width"],
            "height": height or size["height"] - top,
            "scale": 1,
        }
        taken = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(taken["data"]))

    def paper(self, path):
        """Print to PDF."""
        printed = self.send(
            "Page.printToPDF",
            preferCSSPageSize=True,
            paperWidth=8.27,
            paperHeight=11.69,
            printBackground=False,
        )
        path.write_bytes(base64.b64decode(printed["data"]))

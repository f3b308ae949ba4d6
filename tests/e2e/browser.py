# SPDX-License-Identifier: MIT
"""A headless Chromium that shows a file, driven by chromedriver in the words of the WebDriver standard."""
import base64
import json
import re
import subprocess
import urllib.request

import harness


class Browser:
    def __init__(self, test):
        chromium, driver = harness.need("chromium"), harness.need("chromedriver")
        self.driver = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        test.addCleanup(harness.stop_group, self.driver)
        port = next(match[1] for line in self.driver.stdout if (match := re.search(r"started successfully on port (\d+)", line)))
        self.base = f"http://127.0.0.1:{port}/session"
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1700",
                 f"--user-data-dir={test.path('chromium')}"]
        options = {"binary": chromium, "args": words}
        capabilities = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        self.base += "/" + self.ask("", {"capabilities": capabilities})["sessionId"]
        test.addCleanup(self.ask, "", None, "DELETE")
        self.ask("/timeouts", {"script": 1000 * harness.TIMEOUT, "pageLoad": 1000 * harness.TIMEOUT})

    def ask(self, path, body=None, method=None):
        request = urllib.request.Request(self.base + path, None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"},
                                         method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=harness.TIMEOUT) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def open(self, path):
        self.ask("/url", {"url": "file://" + path})

    def run(self, script):
        """The value of a script that may use "await"."""
        whole = f"const done = arguments[0]; (async () => {{ {script} }})().then(done, (e) => done('failed: ' + e));"
        return self.ask("/execute/async", {"script": whole, "args": []})

    def errors(self):
        """What the console has got."""
        return [entry["message"] for entry in self.ask("/se/log", {"type": "browser"}) if entry["level"] == "SEVERE"]

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.ask("/screenshot")))

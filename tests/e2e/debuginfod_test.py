# SPDX-License-Identifier: MIT
"""Debug files from a server of debuginfod: fetched where a definition needs them, kept in the cache, bounded, and never wanted where
the user has not named a server."""
import http.server
import os
import re
import shutil
import subprocess
import threading
import unittest

import harness
from debug_files_test import LINE, Files


class Server:
    """Answers /buildid/ID/debuginfo from a table; the others are unknown. A file may come slowly, or be the wrong one."""

    def __init__(self):
        self.files, self.asked, self.pause, self.go = {}, [], 0, threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                match = re.fullmatch(r"/buildid/([0-9a-f]+)/debuginfo", self.path)
                server.asked.append(match[1] if match else self.path)
                if server.pause:
                    server.go.wait(server.pause)
                path = server.files.get(match[1]) if match else None
                if path is None:
                    self.send_error(404)
                    return
                with open(path, "rb") as file:
                    data = file.read()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                try:
                    self.wfile.write(data)
                except BrokenPipeError:
                    pass  # the client wants no file of that size

            def log_message(self, *words):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def end(self):
        self.go.set()
        self.http.shutdown()
        self.http.server_close()


def is_possible():
    return shutil.which("debuginfod-find") or any(os.path.exists(folder + "/libdebuginfod.so.1") for folder in
                                                 ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64"))


class Fetched(Files):
    def setUp(self):
        super().setUp()
        self.assertTrue(is_possible(), "neither debuginfod-find nor libdebuginfod is installed: scripts/install-dependencies does it")
        self.server = Server()
        self.addCleanup(self.server.end)
        self.cache = self.path("cache")
        values = {"DEBUGINFOD_URLS": self.server.url, "DEBUGINFOD_CACHE_PATH": self.cache, "DEBUGINFOD_TIMEOUT": "60"}
        for name in ("DEBUGINFOD_MAXTIME", "DEBUGINFOD_MAXSIZE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            values.setdefault(name, None)
        for name, value in values.items():
            self.set_variable(name, value)

    def set_variable(self, name, value):
        before = os.environ.get(name)
        def put(what):
            if what is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = what
        put(value)
        self.addCleanup(put, before)

    def serve(self):
        """The program's debug information is on the server alone."""
        away = self.path("away/prog.debug")
        self.separate(away, link=False)
        self.server.files[self.build_id()] = away

    def trace_it(self, place=None):
        return self.trace("-p", f"p:f {place or self.program + ':weigh'} it->n it->name scale")


class Works(Fetched):
    def test_by_name_by_line_and_in_lists(self):
        self.serve()
        for place in (f"{self.program}:weigh", f"{self.program}:prog.c:{LINE}"):
            shutil.rmtree(self.cache, ignore_errors=True)
            seen = self.trace_it(place)
            self.assertEqual([hit.arguments for hit in seen.hits], ['n=3 name="plum" scale=4'], seen.stderr)
            self.assertIn(f"fetching debug information of {self.program} from {self.server.url}".encode(), seen.stderr)
        self.assertEqual(len(self.server.asked), 2, self.server.asked)
        self.assertIn("p:weigh " + self.program + ":weigh", self.listing())

    def test_a_bare_place(self):
        self.serve()
        seen = self.trace("-p", "weigh scale")
        self.assertEqual([hit.arguments for hit in seen.hits], ["scale=4"], seen.stderr)

    def test_from_the_cache(self):
        self.serve()
        self.trace_it()
        self.server.end()
        seen = self.trace_it()
        self.assertEqual([hit.arguments for hit in seen.hits], ['n=3 name="plum" scale=4'], seen.stderr)
        self.assertNotIn(b"fetching", seen.stderr)

    def test_not_wanted(self):
        """Without a server's name nothing is asked, nor is what was fetched before used."""
        self.serve()
        self.trace_it()
        asked = len(self.server.asked)
        for value in (None, "", " "):
            self.set_variable("DEBUGINFOD_URLS", value)
            self.check_unknown()
        self.assertEqual(len(self.server.asked), asked)

    def test_nothing_is_asked_for_what_is_here(self):
        seen = self.trace_it()
        self.assertEqual(len(seen.hits), 1, seen.stderr)
        self.assertEqual(self.server.asked, [])

    def test_what_files_have_in_common(self):
        dwz = harness.need("dwz")
        other = self.path("bin/other")
        self.build(program=other)
        first, second = self.path("away/prog.debug"), self.path("away/other.debug")
        self.separate(first, link=False)
        self.separate(second, program=other, link=False)
        subprocess.run([dwz, "-m", self.path("away/common"), first, second], check=True)
        notes = subprocess.check_output(["readelf", "-n", self.path("away/common")], text=True)
        common = self.path("elsewhere")
        os.rename(self.path("away/common"), common)
        self.server.files[self.build_id()] = first
        self.server.files[re.search(r"Build ID: ([0-9a-f]+)", notes)[1]] = common
        seen = self.trace_it()
        self.assertEqual([hit.arguments for hit in seen.hits], ['n=3 name="plum" scale=4'], seen.stderr)
        self.assertIn(b"(dwz)", seen.stderr)
        self.assertEqual(len(self.server.asked), 2)


class Fails(Fetched):
    def refused(self, *says):
        seen = self.trace("-p", f"p:f {self.program}:prog.c:{LINE} scale")
        self.assertEqual(seen.returncode, 125, seen.stderr)
        for text in says:
            self.assertIn(text, seen.stderr.decode())
        return seen

    def test_no_server_has_it(self):
        self.serve()
        self.server.files.clear()
        self.refused("has no debug information",
                     "no server of DEBUGINFOD_URLS has the debug information of build id " + self.build_id())

    def test_no_server_answers(self):
        self.serve()
        self.server.end()
        self.refused("has no debug information", "debuginfod: ")

    def test_the_wrong_file(self):
        """Of another program; no ELF file; nothing. None of them counts."""
        self.serve()
        self.build(program=self.path("bin/other"), source="int main(void) { return 0; }\n")
        for wrong in (self.path("bin/other"), self.write("text", "no ELF file\n" * 100), self.write("empty", "")):
            shutil.rmtree(self.cache, ignore_errors=True)
            self.server.files[self.build_id()] = wrong
            self.refused("has no debug information")

    def test_a_server_that_keeps_silent(self):
        self.serve()
        self.server.pause = 300
        self.set_variable("DEBUGINFOD_MAXTIME", "1")
        self.set_variable("DEBUGINFOD_TIMEOUT", "1")
        self.refused("has no debug information", "debuginfod: ")

    def test_too_large(self):
        self.serve()
        self.set_variable("DEBUGINFOD_MAXSIZE", "100")
        self.refused("has no debug information", "debuginfod: ")

    def test_another_users_file(self):
        """What the tool asks a server for is not chosen by other users' files."""
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root")
        self.serve()
        os.chown(self.program, 4711, 4711)
        self.refused("has no debug information")
        self.assertEqual(self.server.asked, [])


del Files, Fetched


if __name__ == "__main__":
    harness.main()

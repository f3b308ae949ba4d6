# SPDX-License-Identifier: MIT
"""Probes from Python: a program is launched or attached to under uprobe-run, and its events are objects.

    import uprobe

    with uprobe.launch(["./shop"], ["./shop:sell count=%si:s32"]) as session:
        for event in session:
            print(event.name, event["count"])
    print(session.returncode, session.counts)

One file, Python 3.8 or later, nothing else than uprobe-run, which is looked for beside PATH in the variable UPROBE_RUN. A session
is used by one thread; a thread of its own reads the events. Its memory grows by the events that have not been asked for.
"""
import collections
import json
import os
import queue
import subprocess
import threading
import time

__all__ = ["Error", "Event", "Session", "attach", "launch"]


class Error(Exception):
    """What uprobe-run refused; its own words, where they are known."""


class Event:
    """A hit. `time`: seconds of the trace's clock; `args`: fields by name, as JSON has them (docs/output.md); `latency` and the
    like are fields too."""

    __slots__ = ("name", "group", "time", "cpu", "pid", "tid", "comm", "address", "args")

    def __init__(self, fields):
        self.name, self.group, self.time = fields["event"], fields.get("group"), fields["time"]
        self.cpu, self.pid, self.tid = fields.get("cpu"), fields.get("pid"), fields.get("tid")
        self.comm, self.address = fields.get("comm"), fields.get("address")
        self.args = fields.get("args", {})

    def __getitem__(self, name):
        return self.args[name]

    def __repr__(self):
        return f"<{self.group}/{self.name} {self.comm}-{self.tid} {self.time:.6f} {self.args}>"


def launch(command, probes, options=(), tool=None, **popen):
    """Starts `command`, a list of words, with `probes` set: definitions, as -p takes them. `options`: further words for uprobe-run;
    `popen`: arguments of subprocess.Popen for the program (stdout, cwd, env, ...)."""
    return Session(probes, options, ["--", *command], tool, popen)


def attach(pid, probes, options=(), tool=None):
    """The same for a running process, which goes on when the session ends."""
    return Session(probes, options, ["-P", str(pid)], tool, {"stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL})


def _find_tool(tool):
    return tool or os.environ.get("UPROBE_RUN", "uprobe-run")


class Session:
    """Iterating gives each event once, and ends with the tracing. `counts`: how many of each event have come so far, by name;
    `lost`: what uprobe-run said of losses; `returncode`: the program's, once the session has ended."""

    def __init__(self, probes, options, target, tool, popen):
        self._tool = _find_tool(tool)
        self._is_attached = target[0] == "-P"
        self.counts = collections.Counter()
        self.others = []  # objects that are no event: starts, ends, losses
        self.returncode = None
        self._errors = b""
        self._waiting = queue.SimpleQueue()
        self._seen = collections.deque()
        self._has_ended = False
        readable, writable = os.pipe()
        words = [self._tool, "-q", "--format=json", "-o", f"/dev/fd/{writable}", *options]
        for probe in probes:
            words += ["-p", probe]
        try:
            self._process = subprocess.Popen([*words, *target], pass_fds=(writable,), **popen)
        except FileNotFoundError:
            os.close(readable)
            raise Error(f"{self._tool}: not found; UPROBE_RUN may name it") from None
        finally:
            os.close(writable)
        self.stdout = self._process.stdout
        self._reader = threading.Thread(target=self._read, args=(readable,), daemon=True)
        self._reader.start()

    def _read(self, readable):
        """A tool that was killed may have left the beginning of a line, with which the events end."""
        try:
            with open(readable, encoding="utf-8") as lines:
                for line in lines:
                    self._waiting.put(json.loads(line))
        except ValueError:
            pass
        finally:
            self._waiting.put(None)

    def _take(self, timeout):
        """The next event; None at the end. TimeoutError after so many seconds without one."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._has_ended:
            try:
                fields = self._waiting.get(timeout=None if deadline is None else max(0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError("no event came") from None
            if fields is None:
                self._has_ended = True
            elif "event" not in fields:
                self.others.append(fields)
            else:
                event = Event(fields)
                self.counts[event.name] += 1
                return event
        return None

    def __iter__(self):
        return self

    def __next__(self):
        event = self._seen.popleft() if self._seen else self._take(None)
        if event is None:
            self.finish()
            raise StopIteration
        return event

    def wait_for(self, name, count=1, timeout=10):
        """The next `count` events of this name that no call has returned yet; the others are kept for later. TimeoutError if they
        do not come in time, Error if the tracing ends before."""
        found, kept = [], collections.deque()
        deadline = time.monotonic() + timeout
        try:
            while len(found) < count:
                event = self._seen.popleft() if self._seen else self._take(max(0, deadline - time.monotonic()))
                if event is None:
                    self._end()
                    raise Error(f"the tracing has ended after {len(found)} of {count} '{name}'")
                (found if event.name == name else kept).append(event)
        except TimeoutError:
            kept.extend(found)
            raise TimeoutError(f"{len(found)} of {count} '{name}' in {timeout} s") from None
        finally:
            kept.extend(self._seen)
            self._seen = kept
        return found

    def _control(self, *words):
        done = subprocess.run([self._tool, f"--control={self._process.pid}", *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise Error(done.stderr.strip())
        return done.stdout

    def define(self, probe):
        """Adds a probe to the running program."""
        self._control("-p", probe)

    def remove(self, event):
        self._control(f"--remove={event}")

    def disable(self, event):
        self._control(f"--disable={event}")

    def enable(self, event):
        self._control(f"--enable={event}")

    def stop(self):
        """Lets go of an attached process, which goes on. A launched program gets SIGTERM, which the tool passes on."""
        if self._process.poll() is None:
            self._process.terminate()

    def _end(self):
        if self.returncode is None:
            if self._is_attached:
                with self._process.stderr as errors:
                    self._errors = errors.read()
            self.returncode = self._process.wait()
            self._reader.join()
        if self.returncode == 125:
            text = self._errors.decode(errors="replace").strip() if self._is_attached else ""
            raise Error(text or f"{self._tool} has failed; its message is on standard error")

    def finish(self):
        """Waits for the end of the tracing and returns the program's exit code, negative for a signal; 0 after attach(). Events that
        have not been asked for stay."""
        while not self._has_ended:
            event = self._take(None)
            if event is not None:
                self._seen.append(event)
        self._end()
        return self.returncode

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        """As subprocess.Popen's: waits for a launched program. Lets go of an attached one; an exception stops both."""
        if self._is_attached or kind is not None:
            self.stop()
        try:
            self.finish()
        except Error:
            if kind is None:
                raise

# SPDX-License-Identifier: MIT
"""Programs that answer requests while a tool attaches and leaves, over and over: scripts/endure --attach.

A Service runs in an empty folder of its own and listens on a socket there. Several clients compare each of its answers with the
expected one.
"""
import contextlib
import glob
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import process_state
from program_jobs import LIBC

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "attached", "busy.c")
PATIENCE = 20  # seconds for a program to begin, to answer, and to end
CLIENTS = 3
ALLOCATION = (f"p:m {LIBC}:malloc %di", f"p:f {LIBC}:free %di", f"r:rd {LIBC}:read $retval", f"p:wr {LIBC}:write %di %dx")


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("a program does not begin")
        time.sleep(0.02)


class Service:
    """`name`; `cycles`: the number of attaches; `events`: definitions."""
    name, cycles, events, needs = "", 200, ALLOCATION, ""
    clients = CLIENTS

    def __init__(self, folder):
        self.folder = folder
        self.place = os.path.join(folder, "socket")
        self.process = None

    @classmethod
    def is_here(cls):
        return all(shutil.which(program) for program in cls.needs.split())

    def start(self, *command, **more):
        self.process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, **more)

    def begin(self):
        """Starts it, and waits until it answers."""
        raise NotImplementedError

    def pid(self):
        return self.process.pid

    def connect(self):
        """The state that a client keeps."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE)
        connection.connect(self.place)
        return connection.makefile("rwb", buffering=0)

    def ask(self, connection, client_number, number):
        """(the answer, the expected answer)."""
        raise NotImplementedError

    def end(self):
        """Whether it ends as it does untraced."""
        self.process.terminate()
        return self.process.wait(PATIENCE) == 0


def http_answer(connection, path):
    connection.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.read(1)
        if not byte:
            return head
        head += byte
    left, body = int(re.search(rb"(?i)content-length: (\d+)", head)[1]), b""
    while left > len(body):
        piece = connection.read(left - len(body))
        if not piece:
            break
        body += piece
    return body


class EightThreads(Service):
    """Checks itself: each thread the results of the probed functions and its own registers."""
    name, cycles, needs, clients = "eight threads", 1000, "cc", 0

    def begin(self):
        program = os.path.join(self.folder, "busy")
        subprocess.run(["cc", "-O2", "-pthread", "-o", program, SOURCE], check=True)
        self.events = (f"p:s {program}:several %di:s64 %si:s64", f"r:sr {program}:several $retval:s64", f"p:one {program}:single")
        self.process = subprocess.Popen([program, "signals"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        until(lambda: self.process.stdout.readline() == b"ready\n")

    def end(self):
        self.process.communicate(b"go\n", PATIENCE)
        return self.process.returncode == 0


class Redis(Service):
    name, needs = "redis-server", "redis-server"

    def begin(self):
        program = shutil.which("redis-server")
        self.events = (f"p:c {program}:processCommand $arg1", f"r:cr {program}:processCommand $retval", *ALLOCATION)
        self.start(program, "--port", "0", "--unixsocket", self.place, "--save", "", "--appendonly", "no")
        until(lambda: os.path.exists(self.place))

    def ask(self, connection, client_number, number):
        key = f"k{client_number}"
        connection.write(f"SET {key} {number * 7}\r\nINCRBY {key} {client_number}\r\nSTRLEN {key}\r\n".encode())
        wanted = number * 7 + client_number
        expected = f"+OK\r\n:{wanted}\r\n:{len(str(wanted))}\r\n".encode()
        answer = b""
        while len(answer) < len(expected):
            piece = connection.read(len(expected) - len(answer))
            if not piece:
                break
            answer += piece
        return answer, expected


class Nginx(Service):
    name, needs = "nginx worker", "nginx"
    BODY = b"".join(b"%d," % i for i in range(5000))

    def begin(self):
        with open(os.path.join(self.folder, "page"), "wb") as page:
            page.write(self.BODY)
        with open(os.path.join(self.folder, "conf"), "w", encoding="ascii") as conf:
            conf.write(f"daemon off; worker_processes 1; pid {self.folder}/pid; error_log /dev/null; events {{}}\n"
                       f"http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {self.folder}/a;\n"
                       f"proxy_temp_path {self.folder}/b; fastcgi_temp_path {self.folder}/c; uwsgi_temp_path {self.folder}/d;\n"
                       f"scgi_temp_path {self.folder}/e;\n"
                       f"server {{ listen unix:{self.place}; root {self.folder}; default_type text/plain; }} }}\n")
        os.chmod(os.path.dirname(self.folder), 0o755)
        program = shutil.which("nginx")
        self.events = (f"p:h {program}:ngx_http_process_request", f"r:rv {LIBC}:recv $retval", *ALLOCATION)
        self.start(program, "-p", self.folder, "-c", os.path.join(self.folder, "conf"))
        until(lambda: os.path.exists(self.place) and self.workers())

    def workers(self):
        return process_state.read(f"/proc/{self.process.pid}/task/{self.process.pid}/children").split()

    def pid(self):
        return int(self.workers()[0])

    def ask(self, connection, client_number, number):
        return http_answer(connection, "/page"), self.BODY


class HttpServer(Service):
    """A connection and a thread for each answer."""
    name, needs = "python3 -m http.server", ""
    BODY = bytes(range(256)) * 40

    def begin(self):
        with open(os.path.join(self.folder, "page"), "wb") as page:
            page.write(self.BODY)
        self.process = subprocess.Popen([sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"], cwd=self.folder,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.port = int(re.search(rb"port (\d+)", self.process.stdout.readline())[1])

    def connect(self):
        return contextlib.nullcontext()

    def ask(self, connection, client_number, number):
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as made:
            return http_answer(made.makefile("rwb", buffering=0), "/page"), self.BODY

    def end(self):
        self.process.terminate()
        return self.process.wait(PATIENCE) == -signal.SIGTERM


class Node(Service):
    name, needs = "node", "node"
    SCRIPT = """require("http").createServer((request, answer) => {
      const n = Number(request.url.slice(1)); let sum = 0; const parts = [];
      for (let i = 0; i < n % 500; ++i) { sum += i * n; parts.push(String(sum)); }
      const text = parts.join(","); answer.setHeader("Content-Length", text.length); answer.end(text);
    }).listen(process.argv[1]); process.on("SIGTERM", () => process.exit(0))"""

    def begin(self):
        self.start(shutil.which("node"), "-e", self.SCRIPT, self.place)
        until(lambda: os.path.exists(self.place))

    def ask(self, connection, client_number, number):
        total, parts = 0, []
        for i in range(number % 500):
            total += i * number
            parts.append(str(total))
        return http_answer(connection, f"/{number}"), ",".join(parts).encode()


class Postgres(Service):
    """One backend, whose client is asked."""
    name, clients = "postgres backend", 1

    @staticmethod
    def tools():
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
        return os.path.dirname(found[-1]) if found else None

    @classmethod
    def is_here(cls):
        return cls.tools() is not None and shutil.which("psql") is not None and (os.geteuid() != 0 or cls.user() is not None)

    @staticmethod
    def user():
        if os.geteuid() != 0:
            return None
        with contextlib.suppress(KeyError):
            return pwd.getpwnam("postgres").pw_uid
        return None

    def begin(self):
        os.chmod(os.path.dirname(self.folder), 0o755)
        if self.user() is not None:
            os.chown(self.folder, self.user(), -1)
        data, tools = os.path.join(self.folder, "data"), self.tools()
        self.events = (f"p:e {tools}/postgres:standard_ExecutorStart %di %si", *ALLOCATION)
        subprocess.run([f"{tools}/initdb", "-D", data, "-A", "trust", "-U", "tester"], user=self.user(), check=True, cwd=self.folder,
                       stdout=subprocess.DEVNULL)
        self.start(f"{tools}/postgres", "-D", data, "-k", self.folder, "-c", "listen_addresses=", user=self.user())
        until(lambda: os.path.exists(os.path.join(self.folder, ".s.PGSQL.5432")))
        until(lambda: subprocess.run(self.client("-c", "select 1"), capture_output=True, check=False).returncode == 0)
        self.asked = subprocess.Popen(self.client(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.backend = int(self.query("select pg_backend_pid();"))

    def client(self, *more):
        return ["psql", "-h", self.folder, "-U", "tester", "-At", *more, "postgres"]

    def query(self, text):
        self.asked.stdin.write(text.encode() + b"\n")
        return self.asked.stdout.readline()

    def pid(self):
        return self.backend

    def connect(self):
        return contextlib.nullcontext()

    def ask(self, connection, client_number, number):
        top = number % 1000
        return self.query(f"select sum(x) + {number} from generate_series(0, {top}) x;"), b"%d\n" % (top * (top + 1) // 2 + number)

    def end(self):
        self.asked.communicate(timeout=PATIENCE)
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE) == 0


SERVICES = (EightThreads, Redis, Nginx, HttpServer, Node, Postgres)


class Clients:
    """Threads that ask without a pause; each wrong answer is kept."""

    def __init__(self, service):
        self.service, self.stopped = service, False
        self.answers, self.wrong = [0] * service.clients, []
        self.threads = [threading.Thread(target=self.run, args=(n,), daemon=True) for n in range(service.clients)]
        for thread in self.threads:
            thread.start()

    def run(self, client_number):
        try:
            with self.service.connect() as connection:
                while not self.stopped:
                    answer, wanted = self.service.ask(connection, client_number, self.answers[client_number])
                    if answer != wanted:
                        self.wrong.append(f"{answer[:60]!r} for {wanted[:60]!r}")
                        return
                    self.answers[client_number] += 1
        except (OSError, TypeError) as error:
            self.wrong.append(repr(error))

    def end(self):
        self.stopped = True
        for thread in self.threads:
            thread.join(PATIENCE)
        return sum(self.answers), self.wrong


class Cycles:
    """Attaches and leaves; each fourth time the tool is killed at a random moment instead."""

    def __init__(self, tool, service, tier):
        self.service = service
        self.command = [tool, f"--tier={tier}", "-b", "256K", "-o", "/dev/null", "-d", "20ms"]
        for event in service.events:
            self.command += ["-p", event]
        self.moments = random.Random(1)
        self.hits, self.kills, self.failures = 0, 0, []

    def run(self, number):
        pid = self.service.pid()
        tool = subprocess.Popen([*self.command, "-P", str(pid)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if number % 4 == 3:
            time.sleep(self.moments.uniform(0, 0.4))
            tool.kill()
            self.kills += 1
        text = tool.communicate(timeout=60)[1]
        hits = re.search(r"^uprobe-run: total: ([\d,]+) hits", text, re.M)
        self.hits += int(hits[1].replace(",", "")) if hits else 0
        if tool.returncode not in (0, -signal.SIGKILL) or "keeps handlers" in text:
            self.failures.append(text.strip().splitlines()[-1] if text.strip() else f"exit {tool.returncode}")


def kept(pid, under_signals):
    """Per thread what attaching must not change; in handlers masks and pending signals come and go, all of them together."""
    left_out = ("SigPnd", "ShdPnd", *(("SigBlk",) if under_signals else ()))
    return {task: [line for line in lines if not line.startswith(left_out)]
            for task, lines in process_state.signals_of(pid).items()}


def kilobytes(pid):
    return int(re.search(r"^VmRSS:\s+(\d+)", process_state.read(f"/proc/{pid}/status"), re.M)[1])


def endure(service, tool, tier, cycles):
    """(hits, answers, growth in KB, violations)."""
    service.begin()
    try:
        pid = service.pid()
        warm = Clients(service)
        time.sleep(0.5)
        warm.end()  # with its first thread a program gets handlers of libc's
        before = process_state.checksum_of_text(pid), kept(pid, not service.clients)
        clients, attached = Clients(service), Cycles(tool, service, tier)
        settled = 0
        for number in range(cycles):
            if service.process.poll() is not None or not os.path.exists(f"/proc/{pid}"):
                break
            attached.run(number)
            if number == cycles // 4:
                settled = kilobytes(pid)
        answers, wrong = clients.end()
        differences = wrong + attached.failures
        if not os.path.exists(f"/proc/{pid}"):
            return attached.hits, answers, 0, [*differences, "it has ended"]
        attached.run(0)  # clears away what a killed one may have left
        grown = kilobytes(pid) - settled
        if process_state.checksum_of_text(pid) != before[0]:
            differences.append("its text has changed")
        now = kept(pid, not service.clients)
        differences += [f"thread {task}: {now[task]}, before: {state}" for task, state in before[1].items()
                        if now.get(task, state) != state]
        if not service.end():
            differences.append(f"it ended with {service.process.returncode}")
        return attached.hits, answers, grown, differences
    finally:
        if service.process.poll() is None:
            service.process.kill()

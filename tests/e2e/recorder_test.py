# SPDX-License-Identifier: MIT
"""libuprobe::Recorder: a program keeps a flight recording of itself, which is there after any death, and replays."""
import os
import re
import signal
import subprocess
import tempfile

import harness

PROGRAM = r"""
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>
#include <uprobe/marker.h>
#include <uprobe/recorder.h>
using libuprobe::Recorder;

__attribute__((noinline)) void step(int n, const char* what) { UPROBE_MARK(flight, step, "n=%d what=%s", n, what); }
static void steps(int count, const char* what) { for (int n = 1; n <= count; ++n) step(n, what); }

static int fail(const libuprobe::Error& error) { return std::puts(error.message().c_str()), std::fflush(stdout), 9; }

int main(int argc, char** argv) {
  const std::string mode = argv[1], file = argv[2];
  const std::uint64_t bytes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1 << 20;
  auto made = Recorder::start({.definitions = {std::string(argv[0]) + ":mark:flight:*"}}, file, bytes);
  if (!made) return fail(made.error());
  std::optional<Recorder> recorder(std::move(*made));
  if (mode == "many") {
    for (int turn = 0; turn < 40; ++turn) steps(500, "many"), usleep(60'000);
    std::abort();
  }
  steps(3, mode.c_str());
  if (mode == "segv") *(volatile int*)8 = 1;
  if (mode == "abort") std::abort();
  if (mode == "kill") raise(SIGKILL);
  if (mode == "_exit") _exit(5);
  if (mode == "stack") asm volatile("mov $64, %%rsp\n push %%rax" ::: "memory");
  if (mode == "exec") execl("/bin/true", "true", nullptr);
  if (mode == "handler") {
    signal(SIGSEGV, [](int) { step(99, "handler"); _exit(6); });
    *(volatile int*)8 = 1;
  }
  if (mode == "again") {  // the handler lets it die
    signal(SIGSEGV, [](int) { step(99, "handler"); signal(SIGSEGV, SIG_DFL); });
    *(volatile int*)8 = 1;
  }
  if (mode == "survives") {
    signal(SIGUSR1, [](int) { step(99, "survived"); });
    raise(SIGUSR1);
    return 0;
  }
  if (mode == "threads") {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([] { steps(250, "thread"); });
    for (auto& thread : threads) thread.join();
    std::thread([] { std::abort(); }).join();
  }
  if (mode == "fork") {
    const pid_t child = fork();
    if (child == 0) {
      steps(2, "child");
      if (recorder->dump(file + ".child")) return 8;
      if (recorder->add("p:f main")) return 8;
      recorder.reset();
      std::abort();
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) return 7;
    steps(1, "parent");
    std::abort();
  }
  if (mode == "dump") {
    usleep(200'000);
    auto hits = recorder->dump(file + ".first");
    if (!hits) return fail(hits.error());
    std::printf("%d\n", (int)*hits);
    if (recorder->dump(file + ".first")) return 8;  // it has something in it
    if (!recorder->disable("flight/step")) return 8;
    steps(5, "off");
    if (!recorder->enable("flight/step")) return 8;
    steps(1, "on");
    usleep(200'000);
    auto more = recorder->dump(file + ".second");
    if (!more) return fail(more.error());
    std::printf("%d\n", (int)*more);
    for (const auto& counts : recorder->counts()) std::printf("%s %d %d\n", counts.name.c_str(), (int)counts.hits, (int)counts.lost);
    recorder->stop();
    if (recorder->dump(file + ".third")) return 8;
    Recorder other = std::move(*recorder);
    if (recorder->dump(file + ".third")) return 8;
    std::fflush(stdout);
    std::abort();
  }
  return 0;
}
"""


class Flights(harness.TestCase):
    kept = None  # the folder of what was compiled

    @classmethod
    def tearDownClass(cls):
        if cls.kept is not None:
            cls.kept.cleanup()
            cls.kept = None
        super().tearDownClass()

    def setUp(self):
        super().setUp()
        self.build = os.path.dirname(os.path.abspath(harness.tool()))
        if not os.path.exists(os.path.join(self.build, "library/libuprobe-session.a")):
            self.skipTest("the library is not built")
        if Flights.kept is None:
            Flights.kept = tempfile.TemporaryDirectory(prefix="uprobe-e2e.")
        self.program = self.built("flight", PROGRAM)
        self.file = self.path("flight.rec")

    def built(self, name, text):
        """Once for all tests."""
        program = os.path.join(Flights.kept.name, name)
        if not os.path.exists(program):
            with open(program + ".cpp", "w", encoding="ascii") as file:
                file.write(text)
            subprocess.run([harness.need("c++"), "-std=c++20", "-O1", "-Wall", "-Werror", "-I", os.path.join(harness.Options.source, "library"),
                            f'-DUPROBE_AGENT="{self.build}/libuprobe.so"', f'-DUPROBE_TOOL="{self.build}/uprobe-run"', program + ".cpp",
                            os.path.join(self.build, "library/libuprobe-session.a"), "-lZydis", "-ldw", "-lelf", "-llzma", "-lz",
                            "-lpthread", "-o", program], check=True)
        return program

    def run_in(self, mode, code, *words):
        seen = harness.run([self.program, mode, self.file, *words], cwd=self.folder)
        self.assertEqual(seen.returncode, code, seen.stdout + seen.stderr)
        return seen.stdout.decode()

    def replay(self, path=None):
        path = path or self.file
        harness.wait_until(lambda: os.path.getsize(path) != 0, "the recording")
        done = []

        def is_whole():
            done[:] = [harness.run([harness.tool(), f"--replay={path}"])]
            return done[0].returncode == 0
        harness.wait_until(is_whole, "the whole recording")
        return [(hit.tid, hit.arguments) for hit in harness.parse_trace(done[0].stdout.decode())]

    def steps(self, *pairs):
        return [f"n={n} what={what}" for count, what in pairs for n in range(1, count + 1)]

    def test_deaths(self):
        for mode, code in (("segv", -signal.SIGSEGV), ("abort", -signal.SIGABRT), ("kill", -signal.SIGKILL), ("_exit", 5),
                           ("stack", -signal.SIGSEGV), ("exec", 0)):
            with self.subTest(mode):
                self.file = self.path(mode + ".rec")
                self.run_in(mode, code)
                self.assertEqual([words for _, words in self.replay()], self.steps((3, mode)))
                self.assertEqual(os.stat(self.file).st_mode & 0o777, 0o600)

    def test_handlers_of_the_programs_own(self):
        for mode, code in (("handler", 6), ("again", -signal.SIGSEGV)):
            with self.subTest(mode):
                self.file = self.path(mode + ".rec")
                self.run_in(mode, code)
                self.assertEqual([words for _, words in self.replay()], [*self.steps((3, mode)), "n=99 what=handler"])

    def test_a_signal_that_is_not_fatal_and_a_usual_end(self):
        self.run_in("survives", 0)
        self.run_in("survives", 0)  # the file is there, and empty
        self.assertEqual(os.path.getsize(self.file), 0)

    def test_threads(self):
        self.run_in("threads", -signal.SIGABRT)
        hits = self.replay()
        self.assertEqual(sorted(words for _, words in hits), sorted([*self.steps((3, "threads")), *4 * self.steps((250, "thread"))]))
        self.assertEqual(len({tid for tid, _ in hits}), 5)

    def test_fork(self):
        self.run_in("fork", -signal.SIGABRT)
        hits = self.replay()
        self.assertEqual([words for _, words in hits], self.steps((3, "fork"), (2, "child"), (1, "parent")))
        self.assertEqual(len({tid for tid, _ in hits}), 2)
        self.assertFalse(os.path.exists(self.file + ".child"))

    def test_the_newest(self):
        self.run_in("many", -signal.SIGABRT, str(64 << 10))
        numbers = [int(re.match(r"n=(\d+) what=many$", words)[1]) for _, words in self.replay()]
        self.assertEqual(numbers[-500:], list(range(1, 501)))
        self.assertLess(len(numbers), 3000)

    def test_on_request(self):
        said = self.run_in("dump", -signal.SIGABRT).splitlines()
        self.assertEqual(said, ["3", "4", "flight/step 4 0"])
        self.assertEqual([words for _, words in self.replay(self.file + ".first")], self.steps((3, "dump")))
        self.assertEqual([words for _, words in self.replay(self.file + ".second")], self.steps((3, "dump"), (1, "on")))
        self.assertEqual(os.path.getsize(self.file), 0)

    def test_what_is_refused(self):
        with open(self.file, "w", encoding="ascii") as file:
            file.write("mine\n")
        self.assertIn("has something in it", self.run_in("abort", 9))
        with open(self.file, encoding="ascii") as file:
            self.assertEqual(file.read(), "mine\n")
        self.file = self.path("none/flight.rec")
        self.assertIn("cannot be made: No such file or directory", self.run_in("abort", 9))
        self.file = "/dev/full"
        self.assertIn("is no regular file", self.run_in("abort", 9))
        self.file = self.path("small")
        self.assertIn("64 KiB to 1 GiB", self.run_in("abort", 9, "1000"))
        self.assertFalse(os.path.exists(self.file))
        os.symlink(self.path("target"), self.path("link"))
        self.file = self.path("link")
        self.assertIn("cannot be made", self.run_in("abort", 9))
        self.assertFalse(os.path.exists(self.path("target")))

    def test_the_example(self):
        with open(os.path.join(harness.Options.source, "library/examples/flight_recorder.cpp"), encoding="ascii") as example:
            shop = self.built("shop", example.read())
        seen = subprocess.run([shop, self.file], input=b"plum 3\npear 0\n", capture_output=True, check=False, timeout=harness.TIMEOUT)
        self.assertEqual((seen.returncode, seen.stdout), (-signal.SIGFPE, b"333\n"), seen.stderr)
        self.assertEqual([words for _, words in self.replay()], ["count=3 what=plum", "count=0 what=pear"])


if __name__ == "__main__":
    harness.main()

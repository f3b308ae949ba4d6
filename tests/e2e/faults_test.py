# SPDX-License-Identifier: MIT
"""Faults of probed instructions: a handler sees the same as without probes, may repair, skip or leave, and a program that
catches nothing ends the same way. tests/e2e/fixtures/faults.c has the cases.
"""
import resource
import signal

import harness


def with_core_dumps():
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def without_core_dumps():
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.RLIM_INFINITY))


def sections(text):
    """case -> its lines"""
    found = {}
    for line in text.decode().splitlines():
        if line.endswith(":") and " " not in line:
            name = line[:-1]
            found[name] = []
        else:
            found[name].append(line)
    return found

# A handler of `number` calls probed functions whose fetch arguments fault as the program did; then it goes on as `how` says.
IN_HANDLER = r"""
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static sigjmp_buf saved;
static jmp_buf unsaved;
static const char *how;
static char *bad = (char *)8;
static int depth, number;
__attribute__((noinline)) long f(char *p) { asm volatile("" :: "r"(p) : "memory"); return (long)p * 3 + 1; }
static void show(const char *where) {
  sigset_t set;
  sigprocmask(SIG_BLOCK, 0, &set);
  printf("%s: %d %d %d\n", where, sigismember(&set, SIGSEGV), sigismember(&set, SIGBUS), sigismember(&set, SIGUSR1));
  fflush(stdout);
}
static void on_fault(int got, siginfo_t *info, void *context) {
  const int turn = ++depth, is_fault = info->si_code > 0;
  printf("in %d: %d %d %d\n", turn, got, is_fault, sigismember(&((ucontext_t *)context)->uc_sigmask, got));
  show("handler");
  f(bad);
  if (!strcmp(how, "send") && turn == 1) kill(getpid(), got), f(bad);
  if (!strcmp(how, "again")) *(volatile char *)bad = 1;
  if (!strcmp(how, "open")) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, got), sigprocmask(SIG_UNBLOCK, &set, 0);
    if (turn < 3) *(volatile char *)bad = 1;
  }
  printf("out %d\n", turn), fflush(stdout);
  if (!is_fault) return;
  if (!strcmp(how, "longjmp")) longjmp(unsaved, 1);
  siglongjmp(saved, 1);
}
int main(int argc, char **argv) {
  number = atoi(argv[1]), how = argv[2];
  static char stack[65536];
  const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  if (!strcmp(how, "stack") && !sigaltstack(&other, 0)) action.sa_flags |= SA_ONSTACK;
  if (!strcmp(how, "once")) action.sa_flags |= SA_RESETHAND;
  sigaddset(&action.sa_mask, SIGUSR1), sigaction(number, &action, 0);
  if (number == SIGBUS) bad = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(tmpfile()), 0);
  for (int turn = 0; turn < 2; ++turn) {
    if (!sigsetjmp(saved, 1) && !setjmp(unsaved)) depth = 0, *(volatile char *)bad = 1;
    show("main"), f(bad);
  }
  raise(number), show("end");
  sigaction(number, 0, &action);
  return printf("%x\n", action.sa_flags) < 0;
}
"""


class Faults(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        harness.tool()
        cls.program = harness.fixture("faults")
        listing = harness.run([cls.program, "list"]).stdout.decode()
        cls.hits = {name: int(hits) for name, hits in (line.split("\t") for line in listing.splitlines())}

    def definition(self, name):
        return f"p:{name} {self.program}:probe_{name} %ip"

    def command_with_all(self):
        listed = self.write("list", "".join(self.definition(name) + "\n" for name in self.hits))
        return harness.tracer("-o", self.path("trace"), "-i", listed, "--", self.program, "all")

    def both(self, before_exec):
        plain = harness.run([self.program, "all"], before_exec=before_exec, cwd=self.folder)
        seen = harness.run(self.command_with_all(), before_exec=before_exec, cwd=self.folder)
        self.assertEqual(seen.returncode, plain.returncode, seen.stderr[-2000:])
        return sections(plain.stdout), sections(seen.stdout)

    def test_all_at_once(self):
        plain, seen = self.both(without_core_dumps)
        self.assertEqual(list(plain), list(self.hits))
        for name in self.hits:
            with self.subTest(case=name):
                self.assertEqual(seen[name], plain[name])
        with open(self.path("trace"), encoding="latin-1", newline="") as file:
            hits = harness.parse_trace(file.read())
        counts = {name: sum(hit.event == name for hit in hits) for name in self.hits}
        self.assertEqual(counts, self.hits)

    def test_core_flag(self):
        plain, seen = self.both(with_core_dumps)
        ends = {name: lines[-1] for name, lines in plain.items()}
        self.assertEqual({name: seen[name][-1] for name in ends}, ends)
        self.assertIn("ended with 8b", ends["fatal_read"])

    def test_each_alone(self):
        for name in self.hits:
            with self.subTest(case=name):
                plain = harness.run([self.program, name], before_exec=without_core_dumps)
                seen = harness.run_tool([self.definition(name)], [self.program, name])
                self.assertEqual(seen.stdout, plain.stdout)
                # the tool reports death by a signal as a shell does, or dies of it as well
                self.assertIn(seen.returncode, (plain.returncode, 128 - plain.returncode))
                self.assertEqual(seen.counts(), {name: self.hits[name]})

    def test_loads_that_fault_in_the_handler_of_the_same_fault(self):
        source = self.write("handler.c", IN_HANDLER)
        program = harness.compiled([harness.need("cc"), "-O1", "-D_GNU_SOURCE", source], self.path("handler"))
        for number in (str(int(signal.SIGSEGV)), str(int(signal.SIGBUS))):
            for how in ("return", "send", "again", "open", "longjmp", "stack", "once"):
                with self.subTest(signal=number, how=how):
                    plain = harness.run([program, number, how], before_exec=without_core_dumps)
                    self.assertIn(b"handler: ", plain.stdout)
                    seen = harness.run_tool([f"p:f {program}:f v=+0(%di):u8"], [program, number, how])
                    self.assertEqual(seen.stdout, plain.stdout)
                    self.assertIn(seen.returncode, (plain.returncode, 128 - plain.returncode))
                    self.assertGreater(seen.counts()["f"], 0)

    # they must not take the room near the loader that the copies of its hooks need
    def test_large_rings(self):
        plain = harness.run([self.program, "undefined"], before_exec=without_core_dumps)
        seen = harness.run_tool([self.definition("undefined")], [self.program, "undefined"], ["-b", "512M"])
        self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout))


if __name__ == "__main__":
    harness.main()

# SPDX-License-Identifier: MIT
"""--leak and --pair: what programs with known leaks hold, to the byte and by stack; and how long keys are held."""
import json
import re
import subprocess

import harness

SOURCE = r"""
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define KEPT __attribute__((noinline, noclone))
#define USE(p) __asm__ volatile("" : : "r"(p) : "memory")

KEPT void *apple(size_t n) { void *p = malloc(n); USE(p); return p; }
KEPT void *pear(size_t n, size_t m) { void *p = calloc(n, m); USE(p); return p; }
KEPT void *plum(void *p, size_t n) { p = realloc(p, n); USE(p); return p; }
KEPT void *fig(size_t n) { void *p = NULL; if (posix_memalign(&p, 64, n) != 0) return NULL; USE(p); return p; }
KEPT void *kiwi(size_t n) { void *p = aligned_alloc(4096, n); USE(p); return p; }
KEPT void *lime(size_t n) { void *p = memalign(64, n); USE(p); return p; }
KEPT char *date(const char *s) { char *p = strdup(s); USE(p); return p; }

KEPT static void all_kinds(void) {
  for (int i = 0; i < 10; ++i) apple(100);
  for (int i = 0; i < 1000; ++i) free(apple(i));
  for (int i = 0; i < 3; ++i) pear(7, 11);
  free(pear(7, 11));
  plum(plum(plum(NULL, 10), 20), 100000);
  plum(apple(30), 0);
  plum(apple(77), (size_t)1 << 62);
  fig(500);
  free(fig(500));
  USE(fig((size_t)1 << 62));
  kiwi(8192);
  lime(300);
  free(lime(8));
  date("twelve bytes");
}
static void *work(void *given) {
  for (int i = 0; i < 200; ++i) free(apple(i + 1));
  apple(11);
  free(given);
  return apple(1000);
}
KEPT static void threads(void) {
  pthread_t thread[4];
  for (int i = 0; i < 4; ++i) pthread_create(&thread[i], NULL, work, apple(64));
  for (int i = 0; i < 4; ++i) { void *got; pthread_join(thread[i], &got); free(got); }
}
KEPT static void forks(void) {
  void *inherited = apple(123);
  if (fork() == 0) { free(inherited); apple(45); _exit(0); }
  wait(NULL);
}
KEPT static void descriptors(void) {
  for (int i = 0; i < 5; ++i) { int fd = open("/dev/null", O_RDONLY); usleep(1000); close(fd); }
  if (open("/nowhere", O_RDONLY) >= 0) exit(3);
  int held = open("/dev/null", O_RDONLY);
  (void)held;
}
int main(int argc, char **argv) {
  const char *word = argc > 1 ? argv[1] : "";
  if (strcmp(word, "kinds") == 0) all_kinds();
  if (strcmp(word, "threads") == 0) threads();
  if (strcmp(word, "forks") == 0) forks();
  if (strcmp(word, "descriptors") == 0) descriptors();
  if (strcmp(word, "exec") == 0) { apple(99); execl("/nowhere", "x", (char *)NULL); apple(1); execl(argv[0], argv[0], "after", (char *)NULL); }
  if (strcmp(word, "after") == 0) apple(17);
  if (strcmp(word, "waits") == 0) { char c; void *p = apple(5); while (read(0, &c, 1) == 1) { apple(21); free(p); p = apple(5); if (write(1, &c, 1) != 1) return 1; } }
  return errno == ENOEXEC;
}
"""
CPP = r"""
#include <cstdlib>
#include <malloc.h>
#include <new>
#define USE(p) __asm__ volatile("" : : "r"(p) : "memory")
#define KEPT extern "C" __attribute__((noinline, noclone))
struct alignas(64) Big { char bytes[192]; };
#ifdef OWN
void* operator new(std::size_t n) {
  long* p = static_cast<long*>(std::malloc(n + 16));
  if (p == nullptr) throw std::bad_alloc();
  return p + 2;
}
void operator delete(void* p) noexcept { if (p != nullptr) std::free(static_cast<long*>(p) - 2); }
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
#endif
KEPT void* one() { void* p = ::operator new(10); USE(p); return p; }
KEPT void* many() { char* p = new char[21]; USE(p); return p; }
KEPT void* big() { Big* p = new Big; USE(p); return p; }
KEPT void* bigs() { Big* p = new Big[3]; USE(p); return p; }
KEPT void* quiet() { void* p = ::operator new(33, std::nothrow); USE(p); return p; }
KEPT void* page() { void* p = valloc(50); USE(p); return p; }
KEPT void* pages() { void* p = pvalloc(60); USE(p); return p; }
KEPT void* array(void* from) { void* p = reallocarray(from, 7, 11); USE(p); return p; }
KEPT void* after() { void* p = malloc(5); USE(p); return p; }
KEPT int fails() {
  int failed = 0;
  try { USE(::operator new(std::size_t{1} << 62)); } catch (std::bad_alloc&) { ++failed; }
  return failed + (::operator new(std::size_t{1} << 62, std::nothrow) == nullptr);
}
int main(int argc, char**) {
  one(); ::operator delete(one()); ::operator delete(one(), std::size_t{10});
  many(); delete[] static_cast<char*>(many());
  big(); delete static_cast<Big*>(big());
  bigs(); delete[] static_cast<Big*>(bigs());
  quiet(); ::operator delete(quiet(), std::nothrow);
  page(); free(page());
  if (argc == 1) pages(), free(pages());  // valgrind ends programs that call pvalloc, or whose new fails
  free(array(nullptr)); array(array(nullptr)); reallocarray(array(nullptr), std::size_t{1} << 40, std::size_t{1} << 40);
  const int failed = argc > 1 ? 2 : fails();
  for (int i = 0; i < 4; ++i) after();
  for (int i = 0; i < 20; ++i) ::operator delete(one());
  return failed == 2 ? 0 : 1;
}
"""
CPP_KINDS = {"one": (10, 1), "many": (21, 1), "big": (192, 1), "bigs": (576, 1), "quiet": (33, 1), "page": (50, 1), "pages": (60, 1),
             "array": (154, 2), "after": (20, 4)}
THREADS = r"""
#include <pthread.h>
#include <stdlib.h>
#define USE(p) __asm__ volatile("" : : "r"(p) : "memory")
__attribute__((noinline)) static void keep(size_t n) { void *p = malloc(n); USE(p); }
static void *work(void *given) {
  for (long i = 0; i < 4000; ++i) { void *p = malloc(1 + i % 2000); USE(p); free(p); }
  for (int i = 0; i < 100; ++i) keep(10 + (size_t)given);
  return NULL;
}
int main(void) {
  pthread_t thread[8];
  for (long i = 0; i < 8; ++i) pthread_create(&thread[i], NULL, work, (void *)i);
  for (int i = 0; i < 8; ++i) pthread_join(thread[i], NULL);
  return 0;
}
"""
KINDS = {"apple": (1077, 11), "pear": (231, 3), "plum": (100000, 1), "fig": (500, 1), "kiwi": (8192, 1), "lime": (300, 1), "date": (13, 1)}


class Pairs(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        source = self.write("leaky.c", SOURCE)
        self.program = harness.compiled([harness.need("cc"), "-O1", "-g", "-fno-optimize-sibling-calls", source, "-lpthread"],
                                        self.path("leaky"))

    def report(self, options, *words, program=None):
        """The objects of --json."""
        seen = harness.run([*harness.tracer("--json", "-o", self.path("report"), *options), "--", program or self.program, *words])
        self.assertEqual((seen.returncode, seen.stdout), (0, b""), seen.stderr)
        self.stderr = seen.stderr.decode()
        with open(self.path("report"), encoding="utf-8") as file:
            return json.load(file)

    def check_whole(self, process):
        self.assertEqual({key: process[key] for key in ("missed", "dropped", "lost", "unread", "unfollowed")},
                         {"missed": 0, "dropped": 0, "lost": 0, "unread": 0, "unfollowed": 0})
        self.assertEqual(process["held"], sum(stack["count"] for stack in process["stacks"]))
        self.assertEqual(process["bytes"], sum(stack["bytes"] for stack in process["stacks"]))

    def by_function(self, process, names):
        """{function: (bytes, blocks)} of the functions in a stack that are named; stacks with none of them are left out."""
        sums = {}
        for stack in process["stacks"]:
            for name in [frame for frame in stack["frames"] if frame in names][:1]:
                size, count = sums.get(name, (0, 0))
                sums[name] = (size + stack["bytes"], count + stack["count"])
        return sums


class Leaks(Pairs):
    def test_all_kinds_of_allocations(self):
        [process] = self.report(["--leak=malloc"], "kinds")
        self.check_whole(process)
        self.assertEqual(self.by_function(process, KINDS), KINDS)
        self.assertEqual(process["unknown"], 0)
        self.assertEqual((process["bytes"], process["held"]),
                         (sum(size for size, _ in KINDS.values()), sum(count for _, count in KINDS.values())))
        for stack in process["stacks"]:
            self.assertIn("main", stack["frames"])

    def test_threads(self):
        [process] = self.report(["--leak=malloc"], "threads")
        self.check_whole(process)
        self.assertEqual(self.by_function(process, ("apple",)), {"apple": (44, 4)})
        self.assertGreaterEqual(process["opened"], 4 * 203)

    def cpp(self, *flags):
        source = self.write("news.cpp", CPP)
        return harness.compiled([harness.need("c++"), "-O1", "-g", "-w", "-fno-optimize-sibling-calls", *flags, source], self.path("news"))

    def test_all_forms_of_new(self):
        """Those of the C++ library are seen through malloc; the program's own, which keep a head before each block, by themselves."""
        for flags in ([], ["-DOWN"]):
            with self.subTest(flags):
                [process] = self.report(["--leak=malloc"], program=self.cpp(*flags))
                self.check_whole(process)
                self.assertEqual(self.by_function(process, CPP_KINDS), CPP_KINDS)
                self.assertEqual(process["unknown"], 0)

    def test_threads_that_only_allocate_lose_nothing(self):
        """Their records are many times what the rings hold."""
        program = harness.compiled([harness.need("cc"), "-O1", "-g", self.write("many.c", THREADS), "-lpthread"], self.path("many"))
        [process] = self.report(["--leak=malloc", "-b", "64K"], program=program)
        self.check_whole(process)
        self.assertEqual(self.by_function(process, ("keep",)), {"keep": (100 * sum(range(10, 18)), 800)})
        self.assertGreaterEqual(process["opened"], 8 * 4100)

    def test_valgrind_finds_the_same(self):
        """Bytes and blocks in all, with what the libraries hold."""
        valgrind = harness.need("valgrind")
        threads = harness.compiled([harness.need("cc"), "-O1", "-g", self.write("many.c", THREADS), "-lpthread"], self.path("many"))
        for program, words in ((self.cpp(), ["x"]), (threads, []), (self.program, ["threads"])):
            seen = harness.run([valgrind, "--run-libc-freeres=no", "--run-cxx-freeres=no", program, *words])
            found = re.search(rb"in use at exit: ([\d,]+) bytes in ([\d,]+) blocks", seen.stderr)
            [process] = self.report(["--leak=malloc"], *words, program=program)
            self.assertEqual([process["bytes"], process["held"]], [int(number.replace(b",", b"")) for number in found.groups()], program)

    def test_children_have_their_own(self):
        parent, child = sorted(self.report(["--leak=malloc"], "forks"), key=lambda process: process["bytes"], reverse=True)
        self.assertEqual((self.by_function(parent, ("apple",)), parent["unknown"]), ({"apple": (123, 1)}, 0))
        self.assertEqual((self.by_function(child, ("apple",)), child["unknown"]), ({"apple": (45, 1)}, 1))
        self.assertNotEqual(parent["pid"], child["pid"])

    def test_execve_gives_up_all_unless_it_fails(self):
        [process] = self.report(["--leak=malloc"], "exec")
        self.assertEqual(self.by_function(process, ("apple",)), {"apple": (17, 1)})

    def test_a_recording_has_the_same(self):
        words = [*harness.tracer(f"--record={self.path('recording')}", "--leak=malloc"), "--", self.program, "kinds"]
        self.assertEqual(harness.run(words).returncode, 0)
        seen = harness.run([harness.tool(), f"--replay={self.path('recording')}", "--format=pairs-json"])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        [process] = json.loads(seen.stdout)
        self.check_whole(process)
        self.assertEqual(self.by_function(process, KINDS), KINDS)

    def test_as_text(self):
        seen = harness.run([*harness.tracer("-q", "--leak=malloc"), "--", self.program, "forks"])
        self.assertEqual((seen.returncode, seen.stdout), (0, b""))
        text = seen.stderr.decode()
        self.assertRegex(text, r"(?m)^leak: process \d+ \(leaky\): 123 bytes in 1 block not freed, of 1 allocated\n"
                               r"  123 bytes in 1 block\n    apple\n    forks\n    main\n")
        self.assertIn("  1 block freed that was not seen to be allocated: before the tracing, by a parent, or for an allocator's cache\n", text)

    def test_a_program_without_a_leak(self):
        [process] = self.report(["--leak=malloc"], "x", program=harness.compiled(
            [harness.need("cc"), "-O0", self.write("clean.c", "#include <stdlib.h>\nint main(void) { free(malloc(3)); return 0; }\n")],
            self.path("clean")))
        self.assertEqual((process["opened"], process["closed"], process["held"], process["stacks"]), (1, 1, 0, []))

    def test_the_allocator_of_the_program_itself(self):
        source = self.write("own.c", "#include <stddef.h>\nstatic char memory[4096]; static size_t used;\n"
                            "__attribute__((noinline)) void *malloc(size_t n) { void *p = memory + used; used += (n + 15) / 16 * 16; return p; }\n"
                            "__attribute__((noinline)) void free(void *p) { __asm__ volatile(\"\" : : \"r\"(p)); }\n"
                            "__attribute__((noinline)) void *keep(size_t n) { void *p = malloc(n); __asm__ volatile(\"\" : : \"r\"(p)); return p; }\n"
                            "int main(void) { keep(40); free(keep(50)); return 0; }\n")
        program = harness.compiled([harness.need("cc"), "-O1", "-g", "-fno-builtin", "-fno-optimize-sibling-calls", source], self.path("own"))
        [process] = self.report(["--leak=malloc"], program=program)
        self.assertEqual(self.by_function(process, ("keep",)), {"keep": (40, 1)})

    def test_attached(self):
        """Blocks from before the tracing are known by their number alone."""
        process = subprocess.Popen([self.program, "waits"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        tool = subprocess.Popen([*harness.tracer("--json", "--return=stub", "-o", self.path("report"), "--leak=malloc", "-P", str(process.pid))],
                                stderr=subprocess.PIPE)
        self.addCleanup(tool.wait)
        self.addCleanup(tool.kill)
        harness.wait_until(lambda: b"malloc" in harness.run([harness.tool(), "--control", str(tool.pid), "--list"]).stdout, "the session")
        for _ in range(10):
            process.stdin.write(b"x")
            process.stdin.flush()
            self.assertEqual(process.stdout.read(1), b"x")
        process.stdin.close()
        self.assertEqual(process.wait(), 0)
        tool.communicate(timeout=harness.TIMEOUT)
        process.stdout.close()
        with open(self.path("report"), encoding="utf-8") as file:
            [found] = json.load(file)
        self.assertEqual(self.by_function(found, ("apple",)), {"apple": (215, 11)})
        self.assertEqual(found["unknown"], 1)


class Held(Pairs):
    def test_descriptors(self):
        [process] = self.report(["--pair=open:$retval:s32 -> close:$arg1:s32"], "descriptors")
        self.assertEqual((process["opened"], process["closed"], process["held"]), (6, 5, 1))
        [stack] = process["stacks"]
        self.assertEqual([name for name in stack["frames"] if name in ("descriptors", "main")], ["descriptors", "main"])
        [key] = process["keys"]
        self.assertEqual(key["count"], 5)
        self.assertGreaterEqual(key["held_ns"], 5 * 1000000)
        self.assertTrue(1000000 <= key["longest_ns"] <= key["held_ns"])

    def test_two_pairs_and_sizes(self):
        found = self.report(["--pair=malloc:$retval/$arg1 -> free:$arg1", f"--pair={self.program}:fig:$retval/$arg1->free:$arg1"], "kinds")
        pairs = {process["pair"]: process for process in found}
        self.assertEqual(self.by_function(pairs["pair"], ("date",)), {"date": (13, 1)})
        self.assertEqual((pairs["pair2"]["held"], pairs["pair2"]["bytes"]), (1, 500))


class Words(Pairs):
    def test_what_is_refused(self):
        for words, answer in (([f"--leak={self.program}"], "is not a family of functions that allocate"),
                              (["--leak=malloc", "--leak=malloc"], "leaks are looked for once"),
                              (["--pair=open"], "is not a pair"), (["--pair=open:$retval -> close"], "is not a pair"),
                              (["--pair=open:$retval -> close:$arg1/4"], "is not a pair"),
                              (["--pair=open:$retval x -> close:$arg1"], "is not a pair"),
                              (["--pair=no_such_function:$retval -> close:$arg1"], "no_such_function"),
                              (["--leak=malloc", "-c"], "--leak does not go with -c"),
                              (["--leak=malloc", "-p", "puts"], "--leak does not go with -p"),
                              (["--leak=malloc", "--sample=1/10"], "--leak does not go with --sample"),
                              (["--leak=malloc", "--check"], "--leak is about a program that runs"),
                              (["--replay=x", "--leak=malloc"], "a recording has its probes already")):
            seen = harness.run([harness.tool(), *words, self.program, "kinds"])
            self.assertEqual(seen.returncode, 125, words)
            self.assertIn(answer, seen.stderr.decode(), words)

    def test_dry_run_shows_the_probes(self):
        seen = harness.run([harness.tool(), "--leak=malloc", "--dry-run", self.program])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertIn(b"leak/realloc", seen.stdout)


if __name__ == "__main__":
    harness.main()

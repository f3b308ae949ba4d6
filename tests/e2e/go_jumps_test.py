# SPDX-License-Identifier: MIT
"""Jumps in Go: on stacks that a function may not write below, in threads that no C library knows, under a scheduler that takes
goroutines off a thread at any instruction."""
import os
import re
import subprocess

import harness

MANY = """
package main

import (
  "fmt"
  "os"
  "os/signal"
  "runtime"
  "strconv"
  "sync"
  "syscall"
)

type cart struct{ items [8]int }

//go:noinline
func leaf(n int) int { return n*3 + 1 }

//go:noinline
func entry(n int, name string) int {
  if n < 0 { fmt.Println(name) }
  return n + len(name)
}

//go:noinline
func deep(n int) int {
  var pad [300]byte
  pad[n%300] = 1
  if n == 0 { return int(pad[0]) }
  return int(pad[n%300]) + deep(n-1)
}

//go:noinline
func fault(c *cart, i int) int { return c.items[i] }

//go:noinline
func guarded(c *cart, i int) (r int) {
  defer func() { if recover() != nil { r = -1 } }()
  return fault(c, i)
}

//go:noinline
func alloc(n int) []*int {
  var all []*int
  for i := 0; i < n; i++ { all = append(all, new(int)) }
  return all
}

func main() {
  count, _ := strconv.Atoi(os.Args[1])
  turns, _ := strconv.Atoi(os.Args[2])
  if len(os.Args) > 3 {
    ready := make(chan os.Signal, 1)
    signal.Notify(ready, syscall.SIGUSR1)
    fmt.Fprintln(os.Stderr, "ready")
    <-ready
  }
  var all sync.WaitGroup
  sums := make([]int, count)
  for g := 0; g < count; g++ {
    all.Add(1)
    go func(g int) {
      defer all.Done()
      for k := 0; k < turns; k++ {
        sums[g] += leaf(k) + entry(k, "abc") + guarded(nil, k%8) + guarded(&cart{}, k%9) + len(alloc(k%5))
        if k%7 == 0 { runtime.Gosched() }
      }
      sums[g] += deep(20 + g%50)
    }(g)
  }
  all.Wait()
  total := 0
  for _, sum := range sums { total += sum }
  fmt.Println(total)
  os.Exit(7)
}
"""

PANICS = """
package main

import "fmt"

type node struct{ next *node; value int }

//go:noinline
func third(n *node) int { return n.next.value }

//go:noinline
func second(n *node, depth int) int {
  var pad [200]byte
  if depth == 0 { return third(n) }
  return second(n, depth-1) + int(pad[depth%200])
}

func main() { fmt.Println(second(&node{}, 40)) }
"""

PROFILE = """
package main

import (
  "fmt"
  "os"
  "runtime/pprof"
  "time"
)

//go:noinline
func spin(n int) int { return n*7 + 3 }

//go:noinline
func busy(until time.Time) int {
  sum := 0
  for time.Now().Before(until) { for i := 0; i < 1000; i++ { sum += spin(i) } }
  return sum
}

func main() {
  file, _ := os.Create(os.Args[1])
  pprof.StartCPUProfile(file)
  fmt.Println(busy(time.Now().Add(2 * time.Second)) != 0)
  pprof.StopCPUProfile()
  file.Close()
}
"""

CGO = """
package main

/*
static int twice(int n) { return 2 * n; }
*/
import "C"
import "fmt"

//go:noinline
func calls(n int) int { return int(C.twice(C.int(n))) }

func main() {
  sum := 0
  for i := 0; i < 1000; i++ { sum += calls(i) }
  fmt.Println(sum)
}
"""

BIG_RINGS = "-b64M"


STARTS = """
package main

import (
  "fmt"
  "os/exec"
)

type cart struct{ items int }

//go:noinline
func guarded(c *cart) (r int) {
  defer func() { if recover() != nil { r = -1 } }()
  return c.items
}

func main() {
  sum := 0
  for i := 0; i < 20; i++ {
    sum += guarded(nil)
    out, _ := exec.Command("echo", "x").Output()
    sum += len(out)
  }
  fmt.Println(sum)
}
"""


class Jumps(harness.TestCase):
    def built(self, name, source, **variables):
        harness.need("go")
        program = self.path(name)
        environment = {**os.environ, "GOCACHE": self.path("cache"), "GO111MODULE": "off", "CGO_ENABLED": "0", **variables}
        subprocess.run(["go", "build", *self.flags, "-o", program, self.write(f"{name}.go", source)], env=environment, check=True)
        return program

    flags = ()

    def tiers(self, seen):
        found = re.search(rb"tiers: (\d+) jump, (\d+) int3", seen.stderr)
        self.assertTrue(found, seen.stderr)
        return int(found[1]), int(found[2])

    def expected(self, count, turns):
        return {"leaf": count * turns, "entry": count * turns, "guarded": 2 * count * turns, "fault": 2 * count * turns,
                "alloc": count * turns}

    def definitions(self, program):
        return [f"p:leaf {program}:main.leaf n=%ax:s64", f"p:entry {program}:main.entry n=%ax:s64 s=+0(%bx):string",
                f"p:guarded {program}:main.guarded", f"p:fault {program}:main.fault c=%ax", f"p:alloc {program}:main.alloc"]

    def check(self, program, count, turns, environment):
        arguments = [program, str(count), str(turns)]
        alone = harness.run(arguments, env={**os.environ, **environment})
        self.assertEqual(alone.returncode, 7)
        seen = harness.run_tool(self.definitions(program), arguments, [BIG_RINGS], env={**os.environ, **environment})
        self.assertEqual((seen.returncode, seen.stdout), (7, alone.stdout), seen.stderr[-2000:])
        self.assertNotIn(b"lost", seen.stderr)
        calls = seen.counts()
        for name, wanted in self.expected(count, turns).items():
            # Its check of the stack's bound calls the runtime and comes back to the first instruction.
            again = calls[name] - wanted
            self.assertTrue(0 <= again <= 3 * count, (name, wanted, calls))
        return seen

    def test_counts_and_values(self):
        program = self.built("many", MANY)
        for environment in ({}, {"GOGC": "1"}, {"GOGC": "1", "GODEBUG": "asyncpreemptoff=1"}):
            with self.subTest(environment):
                seen = self.check(program, 40, 100, environment)
                if harness.Options.tier != "int3":
                    self.assertEqual(self.tiers(seen), (5, 0), seen.stderr)
                values = [hit.arguments for hit in seen.hits if hit.event == "entry"]
                self.assertTrue(all(re.fullmatch(r'n=\d+ s="abc.*', value) for value in values), values[:5])
                leaves = sorted(int(hit.arguments[2:]) for hit in seen.hits if hit.event == "leaf")
                self.assertEqual(leaves, sorted(list(range(100)) * 40))

    def test_ten_thousand_goroutines(self):
        self.check(self.built("many", MANY), 10000, 2, {"GOGC": "5"})

    def test_returns(self):
        program = self.built("many", MANY)
        names = ("leaf", "entry", "guarded", "alloc")
        seen = harness.run_tool([f"r:{name} {program}:main.{name} v=%ax:s64" for name in names], [program, "20", "100"],
                                [BIG_RINGS], env={**os.environ, "GOGC": "1"})
        self.assertEqual(seen.returncode, 7, seen.stderr)
        self.assertEqual(seen.counts(), {name: self.expected(20, 100)[name] for name in names})
        leaves = sorted(int(hit.arguments[2:]) for hit in seen.hits if hit.event == "leaf")
        self.assertEqual(leaves, sorted([3 * k + 1 for k in range(100)] * 20))

    def test_first_hits_in_handlers(self):
        """Where a thread has its first hit in the runtime's handler of SIGSEGV, which has that signal blocked."""
        program = self.built("many", MANY)
        alone = harness.run([program, "20", "50"])
        names = ("sighandler", "sigtrampgo", "sigpanic")
        seen = harness.run_tool([f"p:{name} {program}:runtime.{name}" for name in names], [program, "20", "50"], [BIG_RINGS])
        self.assertEqual((seen.returncode, seen.stdout), (7, alone.stdout), seen.stderr[-2000:])
        faults = seen.counts()
        self.assertGreaterEqual(faults["sigpanic"], 20 * 50)
        self.assertGreaterEqual(faults["sighandler"], 20 * 50)
        # %al of sighandler holds the signal's number: a load from there faults.
        seen = harness.run_tool([f"p:bad {program}:runtime.sighandler v=+0(%ax)", f"p:leaf {program}:main.leaf v=+0(%ax)"],
                                [program, "20", "50"], [BIG_RINGS])
        self.assertEqual((seen.returncode, seen.stdout), (7, alone.stdout), seen.stderr[-2000:])
        self.assertEqual(seen.counts()["leaf"], 20 * 50)
        self.assertGreaterEqual(seen.counts()["bad"], 20 * 50)

    def test_the_whole_runtime(self):
        """Every function of the program but the few that run before threads have a place for the agent's word."""
        program = self.built("many", MANY)
        alone = harness.run([program, "10", "5"])
        for environment in ({}, {"GOGC": "1"}, {"GODEBUG": "asyncpreemptoff=1"}):
            with self.subTest(environment):
                seen = harness.run([*harness.tracer("-o", "/dev/null", BIG_RINGS), "-p", f"{program}:*", "--", program, "10", "5"],
                                   env={**os.environ, **environment})
                self.assertEqual((seen.returncode, seen.stdout), (7, alone.stdout), seen.stderr[-2000:])

    def test_attached(self):
        program = self.built("many", MANY)
        arguments = [program, "50", "100", "wait"]
        environment = {**os.environ, "GOGC": "1"}
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
            self.assertEqual(process.stderr.readline(), b"ready\n")
            trace = self.path("trace")
            tool = harness.tracer("-P", str(process.pid), BIG_RINGS, "-o", trace)
            for definition in self.definitions(program):
                tool += ["-p", definition]
            with subprocess.Popen(tool, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as session:
                harness.wait_until(lambda: os.path.exists(trace) and os.path.getsize(trace) > 0, "the session")
                process.send_signal(10)
                output = process.communicate(timeout=harness.TIMEOUT)[0]
                messages = session.communicate(timeout=harness.TIMEOUT)[1]
        self.assertEqual(process.returncode, 7)
        alone = harness.run([program, "50", "100"])
        self.assertEqual(output, alone.stdout)
        with open(trace, encoding="latin-1") as file:
            hits = harness.parse_trace(file.read())
        for name, wanted in self.expected(50, 100).items():
            again = sum(hit.event == name for hit in hits) - wanted
            self.assertTrue(0 <= again <= 150, (name, wanted, again, messages))

    def test_attached_in_the_middle(self):
        """Again and again, while goroutines fault, are led off their threads, and wait anywhere."""
        program = self.built("many", MANY)
        arguments = [program, "300", "1500"]
        alone = harness.run(arguments)
        with subprocess.Popen([*arguments, "wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**os.environ, "GOGC": "5"}) as process:
            self.assertEqual(process.stderr.readline(), b"ready\n")
            process.send_signal(10)
            places = [f"-p{program}:main.*", f"-p{program}:runtime.m*"]
            for _ in range(harness.some_of(24)):
                seen = harness.run([*harness.tracer("-P", str(process.pid), "-d", "0.3", "-o", "/dev/null"), *places])
                if process.poll() is not None:
                    break
                self.assertEqual(seen.returncode, 0, seen.stderr)
            output = process.communicate(timeout=harness.TIMEOUT)[0]
        self.assertEqual((process.returncode, output), (7, alone.stdout))

    def test_panics_are_reported_alike(self):
        program = self.built("panics", PANICS)
        alone = harness.run([program])
        self.assertEqual(alone.returncode, 2)
        names = ("third", "second", "main")
        seen = harness.run_tool([f"p:{name} {program}:main.{name}" for name in names], [program],
                                [])
        self.assertEqual(seen.returncode, 2)
        report = alone.stderr[alone.stderr.index(b"panic:"):]
        plain = lambda text: re.sub(rb"0x[0-9a-f]+", b"X", text)
        self.assertIn(plain(report), plain(seen.stderr))

    def test_handlers_stay_when_a_child_gives_up_its_own(self):
        """Go's child resets all signals in its parent's memory, before it calls execve; its begin cannot be seen."""
        for name, enabled in (("starts", "0"), ("starts_cgo", "1")):
            program = self.built(name, STARTS.replace("import (", 'import "C"\nimport (') if enabled == "1" else STARTS, CGO_ENABLED=enabled)
            seen = harness.run_tool([f"p:guarded {program}:main.guarded"], [program], [])
            self.assertEqual((seen.returncode, seen.stdout), (0, b"20\n"), seen.stderr)
            self.assertGreaterEqual(seen.counts()["guarded"], 20)

    def test_profiles_name_the_program(self):
        program = self.built("profile", PROFILE)
        profile = self.path("cpu")
        seen = harness.run([*harness.tracer("-o", "/dev/null"), "-p", f"{program}:main.spin", "--", program, profile])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        table = subprocess.run(["go", "tool", "pprof", "-top", program, profile], capture_output=True, text=True,
                               env={**os.environ, "HOME": self.path("home")})
        if table.returncode != 0:
            self.skipTest("no go tool pprof")
        self.assertIn("main.busy", table.stdout)
        self.assertNotIn("runtime._ExternalCode", table.stdout)

    def test_with_a_c_library(self):
        harness.need("cc")
        program = self.built("cgo", CGO, CGO_ENABLED="1")
        alone = harness.run([program])
        seen = harness.run_tool([f"p:calls {program}:main.calls n=%ax:s64"], [program], [BIG_RINGS])
        self.assertEqual((seen.returncode, seen.stdout), (0, alone.stdout), seen.stderr)
        self.assertIn(seen.counts()["calls"], range(1000, 1004))
        if harness.Options.tier != "int3":
            self.assertNotRegex(seen.stderr, rb"[1-9]\d* jump")


if __name__ == "__main__":
    harness.main()

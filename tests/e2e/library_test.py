# SPDX-License-Identifier: MIT
"""The engine as a library: installed, found by a user's project, which builds and passes its tests with it."""
import glob
import os
import re
import shutil

import harness


# Builds without CMake, traces a program and itself.
USER = r"""
#include <cstdio>
#include <unistd.h>
#include <uprobe/session.h>
extern "C" __attribute__((noinline)) int work(int n) { return std::printf("%d\n", n); }
int main(int argc, char** argv) {
  const std::string place = std::string("p:work ") + argv[0] + ":work n=%di:s32";
  if (argc > 1) return work(7) != 2;
  auto child = libuprobe::Session::launch({.definitions = {place}}, {argv[0], "child"});
  if (!child) return std::puts(child.error().message().c_str()), 1;
  const auto seen = child->finish();
  auto own = libuprobe::Session::attach({.definitions = {place}}, getpid());
  if (!own) return std::puts(own.error().message().c_str()), 1;
  work(8);
  const auto mine = own->finish();
  std::printf("seen %zu %lld, mine %zu %lld\n", seen.size(), static_cast<long long>(seen.at(0).number("n").value()), mine.size(),
              static_cast<long long>(mine.at(0).number("n").value()));
}
"""


class Installed(harness.TestCase):
    def command(self, *words, env=None):
        seen = harness.run(list(words), timeout=300, env=env)
        self.assertEqual(seen.returncode, 0, (seen.stdout + seen.stderr).decode(errors="replace")[-3000:])
        return seen.stdout.decode(errors="replace")

    def installed(self):
        """The prefix: not where it was installed, since the tree can be moved."""
        self.build = os.path.dirname(harness.tool())
        if not os.path.exists(os.path.join(self.build, "library/libuprobe-session.a")):
            self.skipTest("the library is not built")
        prefix, moved = self.path("first"), self.path("elsewhere")
        self.command("cmake", "--install", self.build, "--prefix", prefix)
        os.rename(prefix, moved)
        return moved

    def test_a_project_builds_and_passes_with_it(self):
        moved, project = self.installed(), self.path("build")
        with open(os.path.join(self.build, "CMakeCache.txt"), encoding="utf-8") as cache:
            compilers = re.findall(r"^(CMAKE_C(?:XX)?_COMPILER):\w+=(.+)$", cache.read(), re.M)
        source = os.path.join(harness.Options.source, "tests/e2e/fixtures/library_user")
        self.command("cmake", "-S", source, "-B", project, f"-DCMAKE_PREFIX_PATH={moved}",
                     *[f"-D{name}={path}" for name, path in compilers])
        self.command("cmake", "--build", project)
        for name, tests in (("prices_test", 13), ("own_test", 10), ("own_process_test", 15), ("callback_test", 2)):
            told = self.command(os.path.join(project, name))
            self.assertRegex(told, rf"\[  PASSED  \] {tests} tests\.")

    def test_a_program_builds_by_pkg_config_and_passes(self):
        moved, compiler = self.installed(), shutil.which("c++") or self.skipTest("no compiler")
        file, = glob.glob(f"{moved}/lib/**/uprobe.pc", recursive=True)
        folders = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(file)}
        source = self.write("user.cpp", USER)
        shell = 'set -e; options=$(pkg-config --cflags --libs uprobe); exec "$0" -std=c++20 -Wall -Werror "$1" -o "$2" $options'
        self.command("sh", "-c", shell, compiler, source, self.path("user"), env=folders)
        self.assertEqual(self.command(self.path("user")).splitlines(), ["7", "8", "seen 1 7, mine 1 8"])
        version = self.command("pkg-config", "--modversion", "uprobe", env=folders).strip()
        self.assertIn(f"uprobe-run {version}\n", self.command(os.path.join(moved, "bin/uprobe-run"), "-V"))
        self.assertTrue(os.path.exists(self.command("pkg-config", "--variable=agent", "uprobe", env=folders).strip()))
        self.command("pkg-config", f"--exact-version={version}", "--static", "--libs", "uprobe", env=folders)

    def test_what_is_installed(self):
        moved = self.installed()
        for path in ("bin/uprobe-run", "include/uprobe/session.h", "include/uprobe/callback.h", "include/uprobe/marker.h", "share/uprobe-run/uprobe-gdb.py", "share/doc/uprobe-run/LICENSE",
                     "share/doc/uprobe-run/NOTICE",
                     "share/man/man1/uprobe-run.1.gz", "share/man/man5/uprobe-definitions.5.gz", "share/man/man3/uprobe-session.3.gz",
                     "share/doc/uprobe-run/README.md", "share/doc/uprobe-run/docs/guide.md",
                     "share/bash-completion/completions/uprobe-run", "share/zsh/site-functions/_uprobe-run",
                     "share/fish/vendor_completions.d/uprobe-run.fish"):
            self.assertTrue(os.path.isfile(os.path.join(moved, path)), path)
        for name in ("libuprobe.so", "libuprobe-session.a", "uprobeConfig.cmake", "uprobeConfigVersion.cmake", "uprobe.pc"):
            self.assertEqual(len(glob.glob(f"{moved}/lib/**/{name}", recursive=True)), 1, name)

    def test_the_header_is_the_standards_alone(self):
        compiler = shutil.which("c++") or self.skipTest("no compiler")
        header = os.path.join(harness.Options.source, "library/uprobe/session.h")
        with open(header, encoding="utf-8") as file:
            self.assertEqual(re.findall(r'#include "', file.read()), [])
        user = self.write("user.cpp", f'#include "{header}"\n' * 2)
        self.command(compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", user)


if __name__ == "__main__":
    harness.main()

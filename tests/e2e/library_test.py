# SPDX-License-Identifier: MIT
"""The engine as a library: installed, found by a user's project, which builds and passes its tests with it."""
import os
import re
import shutil

import harness


class Installed(harness.TestCase):
    def command(self, *words):
        seen = harness.run(list(words), timeout=300)
        self.assertEqual(seen.returncode, 0, (seen.stdout + seen.stderr).decode(errors="replace")[-3000:])
        return seen.stdout.decode(errors="replace")

    def test_a_project_builds_and_passes_with_it(self):
        build = os.path.dirname(harness.tool())
        if not os.path.exists(os.path.join(build, "library/libuprobe-session.a")):
            self.skipTest("the library is not built")
        prefix, moved, project = self.path("first"), self.path("elsewhere"), self.path("build")
        self.command("cmake", "--install", build, "--prefix", prefix)
        os.rename(prefix, moved)  # the tree can be moved
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as cache:
            compilers = re.findall(r"^(CMAKE_C(?:XX)?_COMPILER):\w+=(.+)$", cache.read(), re.M)
        source = os.path.join(harness.Options.source, "tests/e2e/fixtures/library_user")
        self.command("cmake", "-S", source, "-B", project, f"-DCMAKE_PREFIX_PATH={moved}",
                     *[f"-D{name}={path}" for name, path in compilers])
        self.command("cmake", "--build", project)
        for name, tests in (("prices_test", 11), ("own_test", 9), ("own_process_test", 15)):
            told = self.command(os.path.join(project, name))
            self.assertRegex(told, rf"\[  PASSED  \] {tests} tests\.")

    def test_the_header_is_the_standards_alone(self):
        compiler = shutil.which("c++") or self.skipTest("no compiler")
        header = os.path.join(harness.Options.source, "library/uprobe/session.h")
        with open(header, encoding="utf-8") as file:
            self.assertEqual(re.findall(r'#include "', file.read()), [])
        user = self.write("user.cpp", f'#include "{header}"\n' * 2)
        self.command(compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", user)


if __name__ == "__main__":
    harness.main()

# SPDX-License-Identifier: MIT
"""The Debian packages: by lintian, and installed, used and removed in a bare root. The root is made of this system's own packages:
the essential ones and those that the packages depend on, and no others."""
import glob
import os
import re
import subprocess
import unittest

import harness

PROGRAM = r"""
#include <stdio.h>
__attribute__((noinline)) int work(int n) { return n * 2; }
int main(void) { return work(20) + work(1) - 35; }
"""
# The library's user in the root: traces the program beside it.
USER = r"""
#include <cstdio>
#include <uprobe/session.h>
int main(int, char** argv) {
  auto child = libuprobe::Session::launch({.definitions = {std::string("p:work ") + argv[1] + ":work n=%di:s32"}}, {argv[1]});
  if (!child) return std::puts(child.error().message().c_str()), 1;
  const auto seen = child->finish();
  std::printf("%zu %lld\n", seen.size(), static_cast<long long>(seen.at(0).number("n").value()));
}
"""
FIELDS = "${Package}\t${db:Status-Status}\t${Essential}\t${Provides}\t${Pre-Depends}, ${Depends}\n"


class System:
    """What is installed here."""

    def __init__(self):
        self.needs, self.essential, self.providers = {}, [], {}
        for line in subprocess.check_output(["dpkg-query", "-W", "-f", FIELDS], text=True).splitlines():
            name, state, essential, provides, needs = line.split("\t")
            if state != "installed":
                continue
            self.needs[name] = needs
            self.essential += [name] if essential == "yes" else []
            for virtual in self.names(provides):
                self.providers.setdefault(virtual[0], name)

    @staticmethod
    def names(text):
        """Of a field: for each entry its alternatives."""
        entries = [[re.split(r"[\s(:]", each.strip())[0] for each in entry.split("|")] for entry in text.split(",")]
        return [entry for entry in entries if entry[0]]

    def closure(self, *fields):
        """The packages that these fields name, and all that they need."""
        done, todo = set(), [entry for field in fields for entry in self.names(field)]
        while todo:
            names = todo.pop()
            found = [name for each in names for name in (each, self.providers.get(each)) if name in self.needs]
            if not found:
                raise unittest.SkipTest(f"{names[0]} is not installed")
            if found[0] not in done:
                done.add(found[0])
                todo += self.names(self.needs[found[0]])
        return sorted(done)


class Packages(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.build = os.path.dirname(harness.tool())
        if os.getuid() != 0:
            self.skipTest("only root can install packages")
        for name in ("cpack", "dpkg-shlibdeps", "unshare"):
            harness.need(name)
        if not os.path.exists(os.path.join(self.build, "library/libuprobe-session.a")):
            self.skipTest("the library is not built")
        made = harness.run(["cpack", "-G", "DEB", "-B", self.path("packages")], cwd=self.build, timeout=600)
        self.assertEqual(made.returncode, 0, made.stderr.decode())
        self.packages = {os.path.basename(path).split("_")[0]: path for path in glob.glob(self.path("packages/*.deb"))}
        self.assertEqual(sorted(self.packages), ["libuprobe-dev", "uprobe-run"])

    def field(self, package, name):
        return subprocess.check_output(["dpkg-deb", "-f", self.packages[package], name], text=True).strip()

    def bare_root(self, *depends):
        """A root with the essential packages and these, for dpkg as if it had installed them."""
        system = System()
        packages = system.closure(",".join(system.essential), *depends)
        root = self.path("root")
        for folder in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "tmp", "dev", "var/log", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
            os.makedirs(os.path.join(root, folder))
        for name in ("bin", "sbin", "lib", "lib64"):
            os.symlink(f"usr/{name}", os.path.join(root, name))
        listed = subprocess.check_output(["dpkg", "-L", *packages], text=True).split("\n")
        # /bin/sh is /usr/bin/sh
        real = {os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) for path in listed
                if path.count("/") > 1 and os.path.lexists(path)}
        files = sorted(path[1:] for path in real if os.path.islink(path) or not os.path.isdir(path))
        for name in packages:
            files += [path[1:] for pattern in (".", ":*.") for path in glob.glob(f"/var/lib/dpkg/info/{name}{pattern}*")]
        copied = harness.run(["sh", "-c", 'tar -C / --null -T - -cf - | tar -C "$0" -xf -', root], stdin="\0".join(files).encode())
        self.assertEqual((copied.returncode, copied.stderr), (0, b""))
        with open(os.path.join(root, "var/lib/dpkg/status"), "w", encoding="utf-8") as file:
            file.write(subprocess.check_output(["dpkg", "-s", *packages], text=True))
        for name in ("etc/passwd", "etc/group"):
            subprocess.run(["cp", f"/{name}", os.path.join(root, name)], check=True)
        with open(os.path.join(root, "dev/null"), "wb"):
            pass
        subprocess.run(["cp", *self.packages.values(), os.path.join(root, "tmp")], check=True)
        return root

    def inside(self, root, script):
        """The result of a shell's script in the root, where nothing but /proc and /dev/null is mounted."""
        seen = harness.run(["unshare", "-m", "-p", "-f", "sh", "-c",
                            'mount -t proc proc "$0/proc" && mount --bind /dev/null "$0/dev/null" && exec chroot "$0" sh -c "$1"',
                            root, script], timeout=300)
        return seen.returncode, seen.stdout.decode(), seen.stderr.decode()

    def files_of(self, root):
        """All but dpkg's own records."""
        listed = [os.path.join(folder, name) for folder, folders, names in os.walk(root) for name in folders + names]
        return sorted(path for path in listed if not re.search(r"/var/(lib/dpkg|log|cache)/|/root/tmp/", path))

    def test_lintian_finds_no_error(self):
        seen = harness.run([harness.need("lintian"), "--allow-root", "--fail-on", "error", *self.packages.values()], timeout=600)
        self.assertEqual(seen.returncode, 0, (seen.stdout + seen.stderr).decode())

    def test_what_they_depend_on(self):
        depends = self.field("uprobe-run", "Depends")
        for name in ("libc6 (>=", "libdw1", "libelf1", "libstdc++6", "libzydis4.0"):
            self.assertIn(name, depends)
        version = self.field("uprobe-run", "Version")
        self.assertIn(f"uprobe-run (= {version})", self.field("libuprobe-dev", "Depends"))
        control = subprocess.check_output(["dpkg-deb", "-I", self.packages["uprobe-run"]], text=True)
        self.assertNotRegex(control, r"postinst|prerm|postrm|preinst")

    def test_installed_used_and_removed_in_a_bare_root(self):
        root = self.bare_root(self.field("uprobe-run", "Depends"))
        harness.compiled([harness.need("cc"), "-O1", self.write("program.c", PROGRAM)], os.path.join(root, "program"))
        before = self.files_of(root)
        code, out, err = self.inside(root, "! command -v uprobe-run && dpkg -i /tmp/uprobe-run_*.deb >/dev/null && "
                                           "ls /usr/share/man/man1/uprobe-run.1.gz && uprobe-run -q -p work /program")
        self.assertEqual((code, out), (7, "/usr/share/man/man1/uprobe-run.1.gz\n"), err)
        self.assertEqual([hit.task for hit in harness.parse_trace(err)], ["program"] * 2, err)
        self.assertGreater(len(self.files_of(root)), len(before) + 20)
        code, out, err = self.inside(root, "dpkg -P uprobe-run >/dev/null && command -v uprobe-run")
        self.assertEqual((code, out, err), (127, "", ""))
        self.assertEqual(self.files_of(root), before)

    @unittest.skipUnless(harness.LONG, "a long test: scripts/test --full has it")
    def test_a_program_builds_with_the_library_in_a_bare_root(self):
        needs = [re.sub(r"uprobe-run \([^)]*\),", "", self.field("libuprobe-dev", "Depends")), self.field("uprobe-run", "Depends")]
        root = self.bare_root(*needs)
        for name, text in (("program.c", PROGRAM), ("user.cpp", USER)):
            subprocess.run(["cp", self.write(name, text), root], check=True)
        before = self.files_of(root)
        code, out, err = self.inside(root, "dpkg -i /tmp/*.deb >/dev/null && cd /tmp && g++ -O1 -x c /program.c -o program && "
                                           "g++ -std=c++20 /user.cpp -o user $(pkg-config --cflags --libs uprobe) && "
                                           "./user ./program")
        self.assertEqual((code, out), (0, "2 20\n"), err)
        code, _, err = self.inside(root, "dpkg -P libuprobe-dev uprobe-run >/dev/null")
        self.assertEqual((code, err, self.files_of(root)), (0, "", before))


if __name__ == "__main__":
    harness.main()

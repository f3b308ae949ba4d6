"""Processes of different credentials in one session of root's: what a process of another trust domain starts with rights of its
own is left alone.
"""
import os
import struct
import unittest

import harness

NET_RAW = 1 << 13


@unittest.skipIf(os.geteuid() != 0, "changes of credentials need root")
class Programs(harness.TestCase):
    """Of set-id files and files with capabilities, executed by a traced process."""

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        self.fixture = self.copy_of(harness.fixture("domains"))
        os.chmod(self.fixture, 0o755)

    def set_id(self):
        path = harness.copied(self.fixture, self.path("set_id"))
        os.chmod(path, 0o4755)
        if b"uid 65534 0 alone" not in harness.run([self.fixture, "drop", "exec", path, "report"]).stdout:
            self.skipTest("set-id bits count for nothing here")
        return path

    def traced(self, *steps):
        definitions = [f"p:hit {self.fixture}:probed text=+0(%di):string",
                       f"p:other {self.path('set_id')}:probed text=+0(%di):string"]
        known = [definition for definition in definitions if os.path.exists(definition.split(" ")[1].split(":")[0])]
        return harness.run_tool(known, [self.fixture, *steps])

    def test_a_set_id_program_of_another_user_is_not_followed(self):
        program = self.set_id()
        seen = self.traced("hit=before", "drop", "exec", program, "hit=secret", "report")
        self.assertEqual((seen.returncode, seen.stdout), (0, b"uid 65534 0 alone\n"), seen.stderr)
        self.assertIn(b"set-id: it runs untraced", seen.stderr)
        self.assertEqual([hit.arguments for hit in seen.hits], ['text="before"'])

    def test_nor_is_one_that_stands_behind_a_script(self):
        """Before execve the file is an ordinary one: only what the kernel makes of it tells."""
        program = self.set_id()
        script = self.write("script", f"#!{program} report\n", 0o755)
        plain = harness.run([self.fixture, "drop", "exec", script])
        if b"uid 65534 0 alone" not in plain.stdout:
            self.skipTest("set-id bits of interpreters count for nothing here")
        seen = self.traced("drop", "exec", script)
        self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout), seen.stderr)
        self.assertIn(b"execve has changed its credentials", seen.stderr)

    def test_a_program_with_capabilities_is_not_followed(self):
        program = harness.copied(self.fixture, self.path("capable"))
        try:
            os.setxattr(program, "security.capability", struct.pack("<IIIII", 0x02000001, NET_RAW, 0, 0, 0))
        except OSError as error:
            self.skipTest(f"no capabilities of files here: {error}")
        seen = self.traced("drop", "exec", program, "report")
        self.assertEqual((seen.returncode, seen.stdout), (0, b"uid 65534 65534 alone\n"), seen.stderr)

    def test_an_ordinary_program_of_another_user_is_followed(self):
        seen = self.traced("drop", "exec", self.fixture, "hit=after", "report")
        self.assertEqual((seen.returncode, seen.stdout), (0, b"uid 65534 65534 session\n"), seen.stderr)
        self.assertEqual([hit.arguments for hit in seen.hits], ['text="after"'])

    def test_root_follows_its_own(self):
        program = self.set_id()
        seen = self.traced("exec", program, "hit=after", "report")
        self.assertEqual((seen.returncode, seen.stdout), (0, b"uid 0 0 session\n"), seen.stderr)
        self.assertEqual([(hit.event, hit.arguments) for hit in seen.hits], [("other", 'text="after"')])


if __name__ == "__main__":
    harness.main()

# SPDX-License-Identifier: MIT
"""Processes of different credentials in one session of root's: each trust domain has memory of its own for its records, also
after a process has changed its credentials; and a process that another domain starts with more rights is left alone.
"""
import os
import re
import struct
import unittest

import harness

NET_RAW = 1 << 13


@unittest.skipIf(os.geteuid() != 0, "changes of credentials need root")
class Case(harness.TestCase):
    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        self.fixture = self.copy_of(harness.fixture("domains"))
        os.chmod(self.fixture, 0o755)


class Traced(Case):
    def traced(self, *steps, controls=(), ring="64K", timeout=harness.TIMEOUT):
        output = self.path("trace")
        seen = harness.run([*harness.tracer("-o", output, "-b", ring), "-p",
                            f"p:hit {self.fixture}:probed text=+0(%di):string", *controls, "--", self.fixture, *steps],
                           timeout=timeout)
        with open(output, encoding="latin-1", newline="") as file:
            seen.hits = harness.parse_trace(file.read())
        self.assertEqual(seen.returncode, 0, seen.stderr)
        seen.texts = [hit.arguments[len('text="'):-1] for hit in seen.hits]
        seen.parts = re.findall(rb"^part (\d+)$", seen.stdout, re.M)
        return seen


class Changes(Traced):
    """A process changes its credentials, and goes on being recorded, to memory that processes with the old ones do not share."""

    def test_by_libc_before_the_call_returns(self):
        seen = self.traced("part", "child", "hit=before", "drop", "part", "hit=after", "part", "end", "part")
        first, *dropped, last = seen.parts
        self.assertNotIn(b"0", seen.parts)
        self.assertEqual(first, last)
        self.assertNotIn(first, dropped)
        self.assertEqual(len(set(dropped)), 1)
        self.assertEqual(seen.texts, ["before", "after"])

    def test_threads_are_moved_together(self):
        seen = self.traced("part", "child", "threads=3", "drop", "part", "hit=after", "end", ring="16M")
        self.assertEqual(len(set(seen.parts)), 2, seen.stderr)
        self.assertNotIn(b"0", seen.parts, seen.stderr)
        self.assertEqual([text for text in seen.texts if text not in ("thread", "after")], [])
        self.assertIn("after", seen.texts)

    def test_one_that_has_locked_its_memory(self):
        """Without room for more locked memory no mapping succeeds after the change; so the tool makes room for its own."""
        seen = self.traced("part", "child", "lock", "hit=before", "drop", "part", "hit=after", "end")
        self.assertEqual(len(set(seen.parts)), 2, seen.stderr)
        self.assertEqual(seen.texts, ["before", "after"], seen.stderr)

    def test_by_its_own_system_calls_soon(self):
        seen = self.traced("part", "child", "hit=before", "drop_raw", "settle=1000", "part", "hit=after", "end")
        self.assertEqual(len(set(seen.parts)), 2, seen.parts)
        self.assertEqual(seen.texts, ["before", "after"])

    def test_another_user_namespace(self):
        probe = harness.run([self.fixture, "namespace"])
        if probe.returncode != 0:
            self.skipTest("no user namespaces here")
        seen = self.traced("part", "child", "namespace", "part", "hit=after", "end")
        self.assertEqual(len(set(seen.parts)), 2, seen.parts)
        self.assertEqual(seen.texts, ["after"])

    def test_equal_credentials_share_their_memory(self):
        seen = self.traced("child", "drop", "part", "end", "child", "drop", "part", "end")
        self.assertEqual(len(set(seen.parts)), 1)

    def test_a_program_that_another_user_starts(self):
        seen = self.traced("part", "child", "drop", "exec", self.fixture, "part", "hit=after")
        self.assertEqual(len(set(seen.parts)), 2, seen.parts)
        self.assertEqual(seen.texts, ["after"])

    def test_more_domains_than_there_are_parts(self):
        steps = [word for user in range(20) for word in ("child", f"user={60000 + user}", f"hit={user}", "end")]
        seen = self.traced(*steps, "hit=last")
        known = [text for text in seen.texts if text != "last"]
        self.assertEqual(known, [str(user) for user in range(15)])
        self.assertEqual(seen.texts[-1], "last")
        self.assertIn(b"has changed its credentials and is no longer recorded", seen.stderr)


class Adversaries(Traced):
    """Attacks of a process on those of another domain. It has dropped its privileges."""

    def test_reads_no_strings_of_others(self):
        text = "a" + "-secret"  # not in one piece among the arguments: these are no memory of a session
        seen = self.traced(f"hit={text}", "child", f"search={text}", "end", "child", "drop", f"search={text}", "end")
        self.assertEqual(seen.stdout, b"found\nnot found\n")

    def test_nor_does_a_process_without_its_first_thread(self):
        """The kernel shows the credentials of that one for the process's, for as long as the process lives."""
        text = "a" + "-secret"
        seen = self.traced("child", f"hit={text}", "leave_first", "settle=100", "drop", "settle=500", f"search={text}", "end")
        self.assertEqual(seen.stdout, b"not found\n")

    def test_spoils_no_records_of_others(self):
        seen = self.traced("child", "drop", "scribble", "end", *[f"hit={i}" for i in range(200)])
        self.assertEqual(seen.texts[-200:], [str(i) for i in range(200)])

    def test_switches_nothing_off_for_others(self):
        controls = ["--trigger", 'traceoff if text == "off"']
        seen = self.traced("child", "drop", "hit=off", "hit=unseen", "settle=200", "end", "hit=seen", controls=controls)
        self.assertIn("seen", seen.texts)
        self.assertNotIn("unseen", seen.texts)

    def test_takes_no_probes_out_of_others(self):
        """A process that is about to be traced gets its text back first, but only where the kernel lets the other one trace it."""
        seen = self.traced("hit=before", "child", "drop", "trace_parent", "end", "hit=after")
        self.assertEqual(seen.stdout, b"refused\n")
        self.assertEqual(seen.texts, ["before", "after"], seen.stderr)

    def test_is_switched_off_by_those_above(self):
        controls = ["--trigger", 'traceoff if text == "off"']
        seen = self.traced("child", "drop", "hit=first", "end", "hit=off", "settle=500", "child", "drop", "hit=unseen",
                           "end", controls=controls)
        self.assertIn("first", seen.texts)
        self.assertNotIn("unseen", seen.texts)


class Unstoppable(Traced):
    def test_no_other_process_waits_for_them(self):
        """To try to stop them takes the tool some tenths of a second each: a minute in all."""
        seen = self.traced("unstoppable=200", "settle=500", "child", "exec", self.fixture, "hit=after", timeout=25)
        self.assertEqual(seen.texts, ["after"], seen.stderr)


class Programs(Case):
    """Of set-id files and files with capabilities, executed by a traced process."""

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
        self.assertIn(b"runs untraced: it is set-id", seen.stderr)
        self.assertEqual([hit.arguments for hit in seen.hits], ['text="before"'])

    def test_nor_by_a_thread_that_alone_has_dropped(self):
        program = self.set_id()
        seen = self.traced("hit=before", "leave_first", "settle=100", "drop_raw", "exec", program, "hit=secret", "report")
        self.assertIn(b"runs untraced: it is set-id", seen.stderr)
        self.assertEqual([hit.arguments for hit in seen.hits], ['text="before"'])

    def test_nor_is_one_that_stands_behind_a_script(self):
        """Before execve the file is an ordinary one: only the credentials that the kernel gives show otherwise."""
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

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Regenerates kernel-filters.tsv from a list of filters, by giving every one of them to an event of the running kernel.

    make-filters.py LIST > OUT.tsv

LIST: a file whose first tab-separated column is a filter (escaped as below; a line "filter\t..." is skipped), so an existing
table is a valid list. @PID@ is the process that makes the calls. Columns: filter, what write(2) said ("ok" or an errno's
name), the calls that passed, what the filter file then held. Escapes: \\ \t \n \r.
Needs: root, tracefs, cc. Everything happens in a tracing instance and an event group of this process.
"""
import errno
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import oracle  # noqa: E402

EVENT = ("p:e {0}:t_args u=%di:u32 s=%si:s32 str=@0x20000200:string x=%dx arr=@0x20000038:x16[2] "
         "sarr=@0x20000070:string[2] c=$comm ch=%di:char")
CALLS = {"u=1": "args", "u=4294967295": "argsneg"}


def escape(text):
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def unescape(text):
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1]), text)


def write(path, text):
    try:
        descriptor = os.open(path, os.O_WRONLY)
        os.write(descriptor, text.encode("latin-1"))
        return "ok"
    except OSError as failed:
        return errno.errorcode[failed.errno]
    finally:
        os.close(descriptor)


def calls_that_pass(kernel, process):
    """The program makes the calls that a line names, as often as it gets one."""
    open(f"{kernel.instance}/trace", "w").close()
    process.stdin.write("args argsneg\n")
    process.stdin.flush()
    process.stdout.readline()
    found = re.findall(r" (u=\d+) ", kernel.read_trace())
    return ",".join(CALLS[one] for one in found)


def main():
    with tempfile.TemporaryDirectory(prefix="filters.") as folder:
        program = f"{folder}/corpus-target"
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus-target.c")
        subprocess.run(["cc", "-O1", "-g", "-fno-inline", "-fcf-protection=none", "-fno-omit-frame-pointer", "-pthread",
                        "-o", program, source], check=True)
        with oracle.Oracle([EVENT.format(program)], everybody=True) as kernel, \
                subprocess.Popen([program, "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline()
            path = f"{kernel.instance}/events/{kernel.group}/e/filter"
            print("filter\twrite\tmatching calls\tread back")
            for line in open(sys.argv[1], encoding="latin-1"):
                word = line.rstrip("\n").split("\t")[0]
                if word == "filter":
                    continue
                answer = write(path, unescape(word).replace("@PID@", str(process.pid)))
                with open(path, encoding="latin-1", newline="") as file:
                    held = file.read().replace(str(process.pid), "@PID@")
                print(word, answer, calls_that_pass(kernel, process), escape(held), sep="\t")
                write(path, "0")
            process.stdin.close()


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="latin-1")
    main()

# SPDX-License-Identifier: MIT
"""A FUSE server whose file can be opened and mapped, and whose pages never come. Needs root.

    silent_server.py FOLDER     mounts there, says "ready", serves `file`; a name that begins with `never` is not even found, and `held` is
                                never closed, which it says
"""
import ctypes
import os
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, RELEASEDIR = 1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 29
ENOSYS, ENOENT = 38, 2
NOSUID, NODEV = 2, 4
ROOT, FILE, HELD = 1, 2, 3
KEEP_CACHE = 2
VALID = 3600


def attributes(node):
    """struct fuse_attr"""
    mode = 0o40755 if node == ROOT else 0o100755
    return struct.pack("<6Q10I", node, 1 << 20, 2048, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer_to(code, node, words):
    """The answer's bytes, an error, or nothing at all."""
    if code == INIT:
        major, minor, ahead, _ = struct.unpack_from("<4I", words)
        return struct.pack("<4I2H2I2HI7I", major, min(minor, 31), ahead, 0, 16, 12, 65536, 1, 16, 0, 0, *[0] * 7)
    if code == LOOKUP and words.startswith(b"never"):
        return None
    if code == LOOKUP:
        found = {b"file\0": FILE, b"held\0": HELD}.get(words)
        return ENOENT if found is None else struct.pack("<4Q2I", found, 0, VALID, VALID, 0, 0) + attributes(found)
    if code == GETATTR:
        return struct.pack("<Q2I", VALID, 0, 0) + attributes(node)
    if code in (OPEN, OPENDIR):
        return struct.pack("<Q2I", 1, KEEP_CACHE, 0)  # else an open waits for the pages that others wait for
    if code == FLUSH and node == HELD:
        print("held", flush=True)
        return None
    if code in (RELEASE, RELEASEDIR, FLUSH):
        return b""
    return None if code in (READ, FORGET) else ENOSYS


def serve(device):
    while True:
        try:
            message = os.read(device, 1 << 20)
        except OSError:
            return  # unmounted
        _, code, unique, node = struct.unpack_from("<2I2Q", message)
        answer = answer_to(code, node, message[40:])
        if isinstance(answer, int):
            os.write(device, struct.pack("<IiQ", 16, -answer, unique))
        elif answer is not None:
            os.write(device, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)


def main(folder):
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"silent", folder.encode(), b"fuse", NOSUID | NODEV, options.encode()) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    print("ready", flush=True)
    serve(device)


if __name__ == "__main__":
    main(sys.argv[1])

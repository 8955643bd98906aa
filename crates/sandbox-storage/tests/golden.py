"""An independent reading of FORMAT.md: prints the vectors that tests/it/keys.rs pins.

    python3 tests/golden.py
"""

import struct
from hashlib import sha256


def u64(number):
    return struct.pack("<Q", number)


def field(data):
    return u64(len(data)) + data


def entry(path, kind, mode, mtime, content=b"", group=0):
    return dict(path=path, kind=kind, mode=mode, mtime=mtime, content=content, group=group)


DIRECTORY, FILE, SYMLINK = 1, 2, 3


def manifest(entries):
    data = b"sbx-manifest-v1\n" + u64(len(entries))
    for e in sorted(entries, key=lambda e: e["path"]):
        data += field(e["path"]) + struct.pack("<BHqI", e["kind"], e["mode"], *e["mtime"])
        if e["kind"] == FILE:
            data += u64(len(e["content"])) + sha256(e["content"]).digest()
            data += struct.pack("<I", e["group"])
        elif e["kind"] == SYMLINK:
            data += field(e["content"])
    return data


def content_root(entries):
    data = b"sbx-content-v1" + u64(len(entries))
    for e in sorted(entries, key=lambda e: e["path"]):
        data += field(e["path"]) + struct.pack("<BH", e["kind"], e["mode"])
        data += sha256(e["content"]).digest()
    return sha256(data).digest()


def key(backend, template_id, entries):
    data = b"sbx-template-v1" + field(backend) + field(template_id) + content_root(entries)
    return sha256(data).hexdigest()


def show(name, backend, template_id, entries):
    print(name, "key ", key(backend, template_id, entries))
    print(name, "tree", sha256(manifest(entries)).hexdigest())


DEFAULT = (315532800, 0)

show("empty", b"b", b"t", [])

show("bytes", b"bubblewrap", "caf\u00e9".encode(), [
    entry(b"README", FILE, 0o644, DEFAULT, b"hello\n"),
    entry(b"bin", DIRECTORY, 0o755, DEFAULT),
    entry(b"bin/run", FILE, 0o755, DEFAULT, b"#!/bin/sh\n"),
    entry(b"bin-x", FILE, 0o600, DEFAULT),
    entry(b"link", SYMLINK, 0o777, DEFAULT, b"/nowhere/../at all"),
    entry(b"empty", DIRECTORY, 0o700, DEFAULT),
])

show("folder", b"b", b"folder", [
    entry(b"a", DIRECTORY, 0o750, (1700000000, 1)),
    entry(b"a/\xff\n", FILE, 0o640, (1600000000, 123456789), b"odd name"),
    entry(b"a/one", FILE, 0o644, (-5, 999999999), b"twice", group=1),
    entry(b"a/to", SYMLINK, 0o777, (1, 2), b"\xfe"),
    entry(b"a-", FILE, 0o444, (0, 0)),
    entry(b"two", FILE, 0o644, (-5, 999999999), b"twice", group=1),
])

#!/usr/bin/env python3
"""Derives the test vectors from the specifications, with no help from the Rust code.

Every byte is put together from field widths and values in the order in which PCIe Base 6.0 (chapter 2) and
docs/wire.md draw them, most significant bit first. `derive.py` writes the JSON files next to it; `derive.py --check`
fails if they differ from what it would write. README.md says what the files hold.
"""

import json
import pathlib
import sys

sys.dont_write_bytecode = True

from derive_ahead import messages as ahead_messages, pieces
from derive_ddp import segments
from derive_discovery import discovery, messages as lease_messages
from derive_rnic import completions, work_requests
from derive_seal import exchanges, sealed
from derive_tlps import bdf, hex64, id_text, memory, pack, pattern, tlps

HERE = pathlib.Path(__file__).parent


# --- Records: docs/wire.md, "Records" ----------------------------------------------------------------------------

RECORD_KIND = {"tlp": 1, "control": 2, "ddp": 3, "ahead": 4}


def record(kind, stream, sequence, payload, first=True, last=True, padding=0, flags=None, length=None):
    if flags is None:
        flags = last << 1 | first
    pad = -len(payload) % 4
    made = pack(
        (16, len(payload) if length is None else length), (8, RECORD_KIND.get(kind, kind)), (8, flags), (16, stream), (16, sequence),
    ) + payload + bytes([padding]) * pad
    fields = {
        "kind": kind, "first": first, "last": last, "stream": stream, "stream_sequence": sequence, "payload": payload.hex(),
    }
    return made, fields


def records():
    rows = []
    read = memory("MRd", (3, 0, 0), 1, 0x6000, 1, 0xF, 0)[0]
    write = memory("MWr", (3, 0, 0), 0, 0x6000, 2, 0xF, 0xF, pattern(8))[0]

    def good(name, *made, canonical=True):
        body = b"".join(part for part, _ in made)
        rows.append({"name": name, "bytes": body.hex(), "records": [fields for _, fields in made], "canonical": canonical})

    def bad(name, error, *parts):
        rows.append({"name": name, "bytes": b"".join(p[0] if isinstance(p, tuple) else p for p in parts).hex(), "error": error})

    good("an empty body has no record")
    good("one TLP", record("tlp", 1, 0, read))
    good("three TLPs of two streams", record("tlp", 1, 7, read), record("tlp", 2, 0xFFFF, write), record("tlp", 1, 8, write))
    for length in (0, 1, 2, 3, 4, 5):
        good(f"payload of {length} bytes", record("control", 0, 3, pattern(length, 1)), record("tlp", 9, 1, read))
    good("first part of a record", record("tlp", 5, 10, write[:8], last=False))
    good("middle part of a record", record("tlp", 5, 11, write[8:12], first=False, last=False))
    good("last part of a record, and a whole one", record("tlp", 5, 12, write[12:], first=False), record("tlp", 5, 13, read))
    good("highest stream and stream sequence", record("ddp", 0xFFFF, 0xFFFF, pattern(20)))
    good("a piece read ahead, and its doorbell", record("ahead", 3, 4, pattern(80)), record("tlp", 3, 5, write[:16]))
    good("the longest record", record("tlp", 1, 0, memory("MWr", (3, 0, 0), 0, 1 << 32, 1024, 0xF, 0xF, pattern(4096))[0]))
    good("padding that is not zero is ignored", record("control", 0, 0, b"\x01", padding=0xFF), canonical=False)

    bad("header without its last byte", "truncated", record("tlp", 1, 0, b"")[0][:7])
    bad("payload without its last byte", "truncated", record("tlp", 1, 0, read)[0][:-1])
    bad("padding without its last byte", "truncated", record("tlp", 1, 0, b"\x01")[0][:-1])
    bad("length beyond the body", "truncated", record("tlp", 1, 0, read, length=13))
    bad("the longest length field", "truncated", record("tlp", 1, 0, read, length=0xFFFF))
    bad("4 bytes behind the last record", "truncated", record("tlp", 1, 0, read), bytes(4))
    bad("zeros behind the last record", "kind", record("tlp", 1, 0, read), bytes(8))
    for kind in (0, 5, 0xFF):
        bad(f"kind {kind}", "kind", record(kind, 1, 0, read))
    for flags in (0x04, 0x80, 0xFF):
        bad(f"flags {flags:#04x}", "flags", record("tlp", 1, 0, read, flags=flags))
    bad("a bad record behind a good one", "flags", record("tlp", 1, 0, read), record("tlp", 1, 1, read, flags=0x13))
    return rows


# --- Control: docs/wire.md, "Control messages" --------------------------------------------------------------------

CLOSE = {"shutdown": 1, "protocol": 2, "refused": 3}
ATTACH_STATUS = {"attached": 0, "unknown": 1, "busy": 2, "no_room": 3, "not_assigned": 4}
CONTROL = {"attach": 1, "attached": 2, "detach": 3, "detached": 4, "hot_reset": 5, "hot_reset_done": 6}


def hello(node, max_frame_bytes, window, features):
    made = pack((128, node), (16, max_frame_bytes), (16, window), (32, features))
    fields = {
        "node": f"{node:032x}", "max_frame_bytes": max_frame_bytes, "receive_window_frames": window, "features": features,
    }
    return made, fields


def attach(name, stream, payload, read_request, reserved=0):
    made = pack((8, CONTROL["attach"]), (8, reserved), (16, stream), (16, payload), (16, read_request)) + name.encode().ljust(32, b"\0")
    fields = {
        "message": "attach", "name": name, "stream": stream, "max_payload_bytes": payload, "max_read_request_bytes": read_request,
    }
    return made, fields


def attached(stream, status, port, reserved=0):
    made = pack((8, CONTROL["attached"]), (8, ATTACH_STATUS.get(status, status)), (16, stream)) + bdf(*port) + pack((16, reserved))
    return made, {"message": "attached", "stream": stream, "status": status, "port": id_text(port)}


def plain(name, reserved=0):
    return pack((8, CONTROL[name]), (24, reserved)), {"message": name}


def control():
    rows = []

    def good(decoder, name, made, canonical=True):
        rows.append({"name": name, "decoder": decoder, "bytes": made[0].hex(), "fields": made[1], "canonical": canonical})

    def bad(decoder, name, made):
        rows.append({"name": name, "decoder": decoder, "bytes": (made[0] if isinstance(made, tuple) else made).hex(), "error": "refused"})

    node = 0x00112233445566778899AABBCCDDEEFF
    good("hello", "Hello, Ethernet", hello(node, 1500, 256, 0))
    good("hello", "Hello, least of all", hello(0, 576, 1, 0))
    good("hello", "Hello, most of all", hello((1 << 128) - 1, 9216, 0xFFFF, 0xFFFFFFFF))
    good("hello", "Hello, classic", hello(node, 9000, 64, 1))
    longer = hello(node, 1500, 256, 0)
    good("hello", "Hello of a later version, longer", (longer[0] + pattern(9, 1), longer[1]), canonical=False)
    bad("hello", "Hello without its last byte", longer[0][:-1])
    bad("hello", "no Hello at all", b"")
    bad("hello", "Hello with frames of 575 bytes", hello(node, 575, 256, 0))
    bad("hello", "Hello with frames of 9217 bytes", hello(node, 9217, 256, 0))
    bad("hello", "Hello without a window", hello(node, 1500, 0, 0))

    for reason, code in CLOSE.items():
        good("close", f"Close, {reason}", (pack((8, code)), {"reason": reason}))
    good("close", "Close of a later version, longer", (b"\x01\x55\x66", {"reason": "shutdown"}), canonical=False)
    bad("close", "Close without a reason", b"")
    bad("close", "Close, reason 0", b"\0")
    bad("close", "Close, reason 4", b"\x04")

    good("message", "Attach", attach("nvme0", 1, 4096, 4096))
    good("message", "Attach, name of one byte", attach("x", 63, 128, 512))
    good("message", "Attach, name of 32 bytes", attach("0123456789abcdef0123456789abcdef", 0xFFFF, 0xFFFF, 0xFFFF))
    good("message", "Attach, name beyond ASCII", attach("Speicher-größer/1", 2, 256, 512))
    good("message", "Attach, grants nothing", attach("nvme0", 1, 0, 0))
    good("message", "Attach, reserved byte set", attach("nvme0", 1, 4096, 4096, reserved=0xFF), canonical=False)
    for status in ATTACH_STATUS:
        good("message", f"Attached, {status}", attached(1, status, (2, 3, 0) if status == "attached" else (0, 0, 0)))
    good("message", "Attached, reserved bytes set", attached(7, "attached", (2, 31, 7), reserved=0xFFFF), canonical=False)
    for name in ("detach", "detached", "hot_reset", "hot_reset_done"):
        good("message", name, plain(name))
        good("message", f"{name}, reserved bytes set", plain(name, reserved=0xFFFFFF), canonical=False)
        bad("message", f"{name} without its last byte", plain(name)[0][:-1])
    longer = attached(1, "busy", (0, 0, 0))
    good("message", "Attached of a later version, longer", (longer[0] + b"\x01\x02\x03\x04", longer[1]), canonical=False)

    bad("message", "no message at all", b"")
    bad("message", "code 0", bytes(40))
    ahead_messages(good, bad)
    lease_messages(good, bad)
    bad("message", "code 100", b"\x64" + bytes(255))
    bad("message", "code 0xFF", b"\xff" + bytes(39))
    bad("message", "Attach without its last byte", attach("nvme0", 1, 4096, 4096)[0][:-1])
    bad("message", "Attach on the control stream", attach("nvme0", 0, 4096, 4096))
    header = attach("x", 1, 4096, 4096)[0][:8]
    bad("message", "Attach without a name", header + bytes(32))
    bad("message", "Attach, bytes behind the name's end", header + b"ab\0c" + bytes(28))
    bad("message", "Attach, name with a line feed", header + b"a\nb".ljust(32, b"\0"))
    bad("message", "Attach, name with a DEL", header + b"a\x7f".ljust(32, b"\0"))
    bad("message", "Attach, name that is no UTF-8", header + b"a\xff".ljust(32, b"\0"))
    bad("message", "Attach, name cut within a character", header + ("a" * 31 + "ö").encode()[:32])
    bad("message", "Attached without its last byte", attached(1, "busy", (0, 0, 0))[0][:-1])
    bad("message", "Attached, status 5", attached(1, 5, (0, 0, 0)))
    return rows


def crc32c(data):
    """CRC-32C as in RFC 3720, B.4, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283

# --- Frames: docs/wire.md, "The session header" ------------------------------------------------------------------

FRAME_KIND = {"hello": 1, "hello_ack": 2, "data": 3, "ack": 4, "close": 5}


def frame(
    kind, dst, src, sequence, number, tx_ts=0, ack=None, echo=None, sack=None, body=b"", ack_now=False,
    retransmission=False, congested=False, header_check=False, version=1, flags=0, body_len=None, unused=0
):
    """`ack` is (next, credit, cap), `echo` (ts, hold), `sack` (base, marked indices); `flags` are more flag bits,
    `unused` fills the fields whose flag is not set."""
    flags |= (sack is not None) << 0 | (ack is not None) << 1 | (echo is not None) << 2 | ack_now << 3 | retransmission << 4 | congested << 6 | header_check << 7
    next_, credit, cap = ack or (unused,) * 3
    ts, hold = echo or (unused,) * 2
    made = pack(
        (4, version), (4, FRAME_KIND.get(kind, kind)), (8, flags), (16, len(body) if body_len is None else body_len),
        (32, dst), (32, src), (32, sequence), (64, number), (32, next_), (32, tx_ts), (32, ts), (32, hold), (32, credit), (32, cap),
    )
    if sack is not None:
        base, marked = sack
        made += pack((32, base), *((1, index in marked) for index in range(224)))
    fields = {
        "kind": kind, "ack_now": ack_now, "retransmission": retransmission, "congested": congested, "header_check": header_check, "dst_epoch": dst, "src_epoch": src,
        "sequence": sequence, "packet_number": hex64(number), "tx_ts_ns": tx_ts,
        "ack": ack and {"next": next_, "credit": credit, "receiver_cap_bytes": cap},
        "echo": echo and {"ts_ns": ts, "hold_ns": hold},
        "sack": sack and {"base": sack[0], "marked": sorted(sack[1])},
        "body": body.hex(),
    }
    return made + body, fields


def frames():
    rows = []
    a, b = 0x0A0B0C0D, 0xF1E2D3C4
    host = hello(0x00112233445566778899AABBCCDDEEFF, 1500, 256, 0)[0]
    box = hello(0xFFEEDDCCBBAA99887766554433221100, 9000, 512, 1)[0]
    write = record("tlp", 1, 0, memory("MWr", (3, 0, 0), 0, 0x1_0000_6000, 2, 0xF, 0xF, pattern(8))[0])[0]
    top = 0xFFFFFFFF

    def good(name, made, behind=b"", canonical=True):
        covered = len(made[0]) - len(made[1]["body"]) // 2 if made[1]["header_check"] else len(made[0])
        whole = made[0] + pack((32, crc32c(made[0][:covered]))) + behind
        rows.append({"name": name, "bytes": whole.hex(), "fields": made[1], "canonical": canonical and not behind})

    def bad(name, error, made):
        rows.append({"name": name, "bytes": (made[0] if isinstance(made, tuple) else made).hex(), "error": error})

    # A session's first frames.
    good("1: Hello of the host", frame("hello", 0, a, 0, 0, 1000, body=host))
    good("2: HelloAck of the box", frame("hello_ack", a, b, 0, 0, 50_000, echo=(1000, 20), body=box))
    good("3: confirming Hello of the host", frame("hello", b, a, 0, 1, 9000, ack=(0, 256, top), echo=(50_000, 30), body=host))
    good("4: first Data of the box", frame("data", a, b, 0, 1, 60_000, ack=(0, 512, top), echo=(9000, 40), body=write))
    good("5: Ack of the host", frame("ack", b, a, 0, 2, 12_000, ack=(1, 257, top), echo=(60_000, 50)))
    good("6: Close of the host", frame("close", b, a, 0, 3, 15_000, ack=(1, 257, top), body=b"\x01"))

    good("every field another value",
         frame("data", 0x01020304, 0x05060708, 0x090A0B0C, 0x1112131415161718, 0x1D1E1F20, ack=(0x191A1B1C, 0x292A2B2C, 0x2D2E2F30),
               echo=(0x21222324, 0x25262728), sack=(0x31323334, {0, 9, 18, 27, 200, 223}), body=write, ack_now=True, retransmission=True, congested=True))
    good("every number at its highest",
         frame("ack", top, top, top, (1 << 64) - 1, top, ack=(top,) * 3, echo=(top, top), sack=(top, set(range(224)))))
    good("Data without acknowledgement", frame("data", b, a, 7, 9, 77, body=write))
    good("Data that asks for an acknowledgement", frame("data", b, a, 7, 10, 78, ack=(5, 261, top), body=write, ack_now=True))
    good("Data sent again under another packet number", frame("data", b, a, 7, 11, 79, ack=(5, 261, top), body=write, retransmission=True))
    good("Ack of data that a switch had marked", frame("ack", b, a, 0, 12, 80, ack=(5, 261, top), congested=True))
    good("Data whose header alone is checked", frame("data", b, a, 8, 12, 80, ack=(5, 261, top), body=write, header_check=True))
    good("Data whose header and SACK block alone are checked", frame("data", b, a, 8, 12, 80, ack=(5, 261, top), sack=(6, {1}), body=write, header_check=True))
    good("Data without a record", frame("data", b, a, 8, 12, 80))
    for index in (0, 7, 8, 223):
        good(f"SACK of index {index}", frame("ack", b, a, 0, 12, 80, ack=(100, 356, top), sack=(101, {index})))
    good("SACK of nothing", frame("ack", b, a, 0, 12, 80, ack=(100, 356, top), sack=(101, set())))
    good("SACK across the wrap of the sequence", frame("ack", b, a, 0, 12, 80, ack=(0xFFFFFFF0, 0xF0, top), sack=(0xFFFFFFF1, {0, 14, 15, 16})))
    good("Ack with a receiver cap", frame("ack", b, a, 0, 12, 80, ack=(100, 356, 65536)))
    good("padding behind the check is ignored", frame("ack", b, a, 0, 13, 81, ack=(100, 356, top)), behind=bytes(12))
    good("anything behind the check is ignored", frame("data", b, a, 9, 14, 82, body=write), behind=b"\xaa" * 12)
    good("fields whose flag is not set are ignored", frame("data", b, a, 9, 15, 83, body=write, unused=0x5A5A5A5A), canonical=False)

    whole = frame("data", b, a, 7, 9, 77, ack=(5, 261, top), sack=(6, {1}), body=write)[0]
    bad("no byte", "truncated", b"")
    bad("header without its last byte", "truncated", whole[:47])
    bad("header alone, though it has SACK", "truncated", whole[:48])
    bad("SACK block without its last byte", "truncated", whole[:79])
    bad("body missing", "truncated", whole[:80])
    bad("body without its last byte", "truncated", whole[:-1])
    bad("body length beyond the frame", "truncated", frame("data", b, a, 7, 9, 77, body=write, body_len=len(write) + 1))
    check = pack((32, crc32c(whole)))
    bad("check missing", "truncated", whole)
    bad("check without its last byte", "truncated", whole + check[:3])
    bad("body length 65535", "truncated", frame("ack", b, a, 7, 9, 77, body_len=0xFFFF))
    bad("check with its last bit turned", "check", whole + check[:3] + bytes([check[3] ^ 1]))
    bad("check in the wrong byte order", "check", whole + check[::-1])
    bad("check of zeros", "check", whole + bytes(4))
    # Of bytes 1 and 3 (flags, body length) bits whose change leaves a frame that could be one.
    for at, bit in ((1, 0x08), (3, 0x20), (5, 0x01), (23, 0x80), (30, 0x01), (50, 0x10), (79, 0x01), (88, 0x40), (len(whole) - 1, 0x01)):
        bad(f"byte {at} damaged", "check", whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1:] + check)
    for version in (0, 2, 15):
        bad(f"version {version}", "version", frame("ack", b, a, 0, 1, 2, version=version))
    for kind in (0, 6, 15):
        bad(f"kind {kind}", "kind", frame(kind, b, a, 0, 1, 2))
    bad("flag sealed", "flags", frame("ack", b, a, 0, 1, 2, flags=0x20))
    for kind in ("hello", "hello_ack", "ack", "close"):
        bad(f"header check in a frame that is no Data: {kind}", "flags", frame(kind, b, a, 0, 1, 2, header_check=True))
    unchecked = frame("data", b, a, 7, 9, 77, body=write, header_check=True)[0]
    bad("header check of the whole frame", "check", unchecked + pack((32, crc32c(unchecked))))
    return rows


def sealed_frames():
    return sealed(frame, record, memory("MWr", (3, 0, 0), 0, 0x1_0000_6000, 2, 0xF, 0xF, pattern(8))[0])


FILES = {
    "frames.json": frames, "records.json": records, "tlps.json": tlps, "control.json": control, "pieces.json": pieces,
    "segments.json": segments, "work_requests.json": work_requests, "completions.json": completions,
    "sealed.json": sealed_frames, "exchanges.json": exchanges, "discovery.json": lambda: discovery(crc32c),
}


def text(rows):
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    for name, rows in FILES.items():
        path, content = HERE / name, text(rows())
        if not check:
            path.write_text(content, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != content:
            sys.exit(f"{name} is not what derive.py derives: run vectors/derive.py and look at the difference")


if __name__ == "__main__":
    main()

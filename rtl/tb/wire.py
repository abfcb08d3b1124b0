"""Frames, packets and vectors for tests: what docs/wire.md says, in Python."""

import json
from pathlib import Path

VECTORS = Path(__file__).resolve().parents[2] / "vectors"
KINDS = {"hello": 1, "hello_ack": 2, "data": 3, "ack": 4, "close": 5}
HEADER, SACK, CHECK = 48, 32, 4


def vectors(name="frames"):
    return json.loads((VECTORS / f"{name}.json").read_text())


def check(data):
    """CRC-32C, bit by bit, most significant byte first."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return (state ^ 0xFFFFFFFF).to_bytes(4, "big")


def beats(data, width, **last):
    """A packet as beats of a stream; `last` goes with the last one."""
    size = width // 8
    made = []
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        is_last = at + size >= len(data)
        beat = {"data": int.from_bytes(piece, "little"), "keep": (1 << len(piece)) - 1, "last": int(is_last)}
        made.append({**beat, **{name: value if is_last else 0 for name, value in last.items()}})
    return made


def packets(items):
    """The packets that beats make; fails if one has a hole or ends short of its last beat."""
    made, now = [], b""
    for beat in items:
        keep = beat["keep"]
        count = keep.bit_length()
        assert keep == (1 << count) - 1 and count, f"tkeep {keep:x} has a hole"
        now += (beat["data"] & ((1 << 8 * count) - 1)).to_bytes(count, "little")
        if beat["last"]:
            made.append(now)
            now = b""
    assert not now, "a packet without end"
    return made


def parts(frame):
    """Header, SACK block (or zeros) and body of a good frame, the first two as the numbers that the packed structs are."""
    sack = frame[1] & 1
    body = HEADER + SACK * sack
    length = int.from_bytes(frame[2:4], "big")
    block = frame[HEADER:body] if sack else bytes(SACK)
    return int.from_bytes(frame[:HEADER], "big"), int.from_bytes(block, "big"), frame[body : body + length]


def canonical():
    """The frames of the vectors that a sender would write."""
    return [bytes.fromhex(vector["bytes"]) for vector in vectors() if vector.get("canonical")]

"""Rules and pieces of docs/wire.md, "Read-ahead", as derive.py's other rows."""

from derive_tlps import hex64, pack, pattern

PIECE = {"entries": 1, "data": 2, "list": 3}
DATA, PAGES, LIST = 1, 2, 4


def condition(offset, mask, value, reserved=0):
    made = pack((16, offset), (16, reserved), (32, mask), (32, value))
    return made, {"offset": offset, "mask": mask, "value": value}


def follow(flags, first, second, length, mask, bias, shift, max_bytes, *when, reserved=0, conditions=None, unused=0):
    """`unused` fills the places of conditions that are not there."""
    count = len(when) if conditions is None else conditions
    made = pack(
        (8, flags), (8, count), (16, first), (16, second), (16, length), (32, mask), (16, bias), (8, shift), (8, reserved), (32, max_bytes),
    ) + b"".join(part for part, _ in when) + bytes([unused]) * 12 * (2 - len(when))
    fields = {
        "flags": flags, "first": first, "second": second, "length": length, "mask": mask, "bias": bias, "shift": shift,
        "max_bytes": max_bytes, "when": [fields for _, fields in when],
    }
    return made, fields


def read_ahead(rule, generation, bar, doorbell, mask, ring, entry_bytes, entries, *follows, count=None, reserved=0):
    count = len(follows) if count is None else count
    made = pack(
        (8, 7), (8, rule), (16, generation), (8, bar), (8, count), (16, entry_bytes), (32, doorbell), (32, mask), (64, ring),
        (32, entries), (32, reserved),
    ) + b"".join(part for part, _ in follows)
    fields = {
        "message": "read_ahead", "rule": rule, "generation": generation, "bar": bar, "doorbell": doorbell, "mask": mask,
        "ring": hex64(ring), "entry_bytes": entry_bytes, "entries": entries, "follows": [fields for _, fields in follows],
    }
    return made, fields


def withdraw(rule, reserved=0):
    return pack((8, 8), (8, rule), (16, reserved)), {"message": "withdraw", "rule": rule}


# Submission Queue Entries of NVMe: opcode and PSDT in dword 0, PRP1 at 24, PRP2 at 32, blocks - 1 of 512 bytes in dword 12.
WRITE = follow(DATA | PAGES | LIST, 24, 32, 48, 0xFFFF, 1, 9, 8192, condition(0, 0xC0FF, 1), condition(4, 0xFFFFFFFF, 1))
READ = follow(PAGES | LIST, 24, 32, 48, 0xFFFF, 1, 9, 0, condition(0, 0xC0FF, 2))
# A transmit descriptor of a NIC: address, then length.
DESCRIPTOR = follow(DATA, 0, 0, 8, 0xFFFF, 0, 0, 16384)
TOP = 0xFFFFFFFF


def messages(good, bad):
    """Rows for control.json."""
    queue = (1, 7, 0, 0x1008, 0xFFFF, 0x1_2345_6000, 64, 1024)
    good("message", "ReadAhead, no follow", read_ahead(*queue))
    good("message", "ReadAhead, NVMe queue", read_ahead(*queue, WRITE, READ))
    good("message", "ReadAhead, ring of a NIC", read_ahead(0, 0, 2, 0x3818, TOP, 0x8000, 16, 256, DESCRIPTOR))
    good("message", "ReadAhead, least of all", read_ahead(0, 0, 0, 0, 0, 0, 1, 2))
    most = follow(DATA | PAGES | LIST, 4088, 4088, 4092, TOP, 0xFFFF, 16, 16384, condition(4092, TOP, TOP), condition(4092, TOP, TOP))
    good("message", "ReadAhead, most of all", read_ahead(128, 0xFFFF, 5, TOP - 3, TOP, (1 << 64) - (1 << 28) - 1, 4096, 65536, most, most, most, most))
    good("message", "ReadAhead, reserved bytes set", read_ahead(*queue, reserved=TOP), canonical=False)
    good("message", "ReadAhead, reserved byte of a follow set",
         read_ahead(*queue, follow(DATA, 0, 0, 8, 1, 0, 0, 1, reserved=0xFF, unused=0xFF)), canonical=False)
    good("message", "ReadAhead, reserved bytes of a condition set",
         read_ahead(*queue, follow(DATA, 0, 0, 8, 1, 0, 0, 1, condition(0, 1, 1, reserved=0xFFFF))), canonical=False)
    longer = read_ahead(*queue, READ)
    good("message", "ReadAhead of a later version, longer", (longer[0] + b"\x01", longer[1]), canonical=False)
    bad("message", "ReadAhead without its last byte", longer[0][:-1])
    bad("message", "ReadAhead, a follow missing", read_ahead(*queue, READ, count=2))
    bad("message", "ReadAhead, five follows", read_ahead(*queue, READ, READ, READ, READ, READ))
    for name, at, value in (
        ("rule 129", 0, 129), ("BAR 6", 2, 6), ("doorbell at an odd offset", 3, 0x1002), ("entries of no byte", 6, 0),
        ("entries of 4097 bytes", 6, 4097), ("one entry", 7, 1), ("65537 entries", 7, 65537), ("a ring beyond 2^64", 5, (1 << 64) - 65536),
    ):
        bad("message", f"ReadAhead, {name}", read_ahead(*queue[:at], value, *queue[at + 1:]))
    for name, wrong in (
        ("reserved flag", follow(8, 24, 32, 48, 1, 0, 0, 0)), ("list without pages", follow(LIST, 24, 32, 48, 1, 0, 0, 0)),
        ("first pointer beyond the entry", follow(DATA, 57, 0, 48, 1, 0, 0, 0)),
        ("second pointer beyond the entry", follow(DATA | PAGES, 24, 57, 48, 1, 0, 0, 0)),
        ("length beyond the entry", follow(DATA, 24, 0, 61, 1, 0, 0, 0)), ("shift by 17", follow(DATA, 24, 0, 48, 1, 0, 17, 0)),
        ("data beyond its bound", follow(DATA, 24, 0, 48, 1, 0, 0, 16385)),
        ("condition beyond the entry", follow(DATA, 24, 0, 48, 1, 0, 0, 0, condition(61, 1, 1))),
        ("three conditions", follow(DATA, 24, 0, 48, 1, 0, 0, 0, condition(0, 1, 1), condition(0, 1, 1), conditions=3)),
    ):
        bad("message", f"ReadAhead, {name}", read_ahead(*queue, wrong))
    good("message", "Withdraw", withdraw(1))
    good("message", "Withdraw, the highest rule", withdraw(128))
    good("message", "Withdraw, reserved bytes set", withdraw(1, reserved=0xFFFF), canonical=False)
    bad("message", "Withdraw, rule 129", withdraw(129))
    bad("message", "Withdraw without its last byte", withdraw(1)[0][:-1])


def piece(rule, kind, generation, index, address, data, reserved=0):
    made = pack((8, rule), (8, PIECE.get(kind, kind)), (16, generation), (16, index), (16, reserved), (64, address)) + data
    fields = {
        "rule": rule, "kind": kind, "generation": generation, "index": index, "address": hex64(address), "data": data.hex(),
    }
    return made, fields


def pieces():
    rows = []

    def good(name, made, canonical=True):
        rows.append({"name": name, "bytes": made[0].hex(), "fields": made[1], "canonical": canonical})

    def bad(name, made):
        rows.append({"name": name, "bytes": (made[0] if isinstance(made, tuple) else made).hex(), "error": "refused"})

    good("two entries", piece(1, "entries", 7, 1022, 0x1_2345_6000 + 1022 * 64, pattern(128)))
    good("data of an entry", piece(1, "data", 7, 1022, 0x5_0000_0200, pattern(512)))
    good("the longest piece", piece(1, "data", 7, 1022, 0x5_0000_0000, pattern(4096)))
    good("list of an entry", piece(1, "list", 7, 1023, 0x7008, pattern(16)))
    good("one byte", piece(0, "data", 0, 0, 0, b"\xff"))
    good("every number at its highest", piece(128, "list", 0xFFFF, 0xFFFF, (1 << 64) - 3, pattern(2)))
    good("reserved bytes set", piece(1, "data", 7, 2, 0x1000, pattern(4), reserved=0xFFFF), canonical=False)
    bad("no piece at all", b"")
    bad("header without its last byte", piece(1, "data", 7, 2, 0x1000, b"")[0][:-1])
    bad("no byte", piece(1, "data", 7, 2, 0x1000, b""))
    bad("4097 bytes", piece(1, "data", 7, 2, 0x1000, pattern(4097)))
    bad("rule 129", piece(129, "data", 7, 2, 0x1000, pattern(4)))
    bad("bytes beyond 2^64", piece(1, "data", 7, 2, (1 << 64) - 3, pattern(4)))
    for kind in (0, 4, 0xFF):
        bad(f"kind {kind}", piece(1, kind, 7, 2, 0x1000, pattern(4)))
    return rows

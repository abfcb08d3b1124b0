"""Work requests and completions as docs/rnic.md draws them (sections 4 and 5). They are little-endian."""

from derive_tlps import hex64, pattern

OPCODE = {
    "write": 0, "write_immediate": 1, "send": 2, "send_immediate": 3, "send_invalidate": 4, "read": 5, "fetch_add": 6,
    "compare_swap": 7, "bind": 8, "invalidate": 9, "nop": 10, "received": 0x80, "received_write": 0x81,
}
SIGNALED, FENCE, SOLICITED, INLINE, FLAGS = 1, 2, 4, 8, 16


def place(size, *fields):
    """Bytes of this size with little-endian fields: (offset, bytes, value)."""
    made = bytearray(size)
    for at, width, value in fields:
        made[at:at + width] = value.to_bytes(width, "little")
    return bytes(made)


def sge(to, stag, length):
    return place(16, (0, 8, to), (8, 4, stag), (12, 4, length))


def whole_blocks(made):
    return made + bytes(-len(made) % 64)


def send(opcode, identifier, flags=SIGNALED, remote_to=0, remote_stag=0, immediate=0, sges=(), inline=None, operands=None, local=None, remote=None):
    first = 48 if opcode in ("fetch_add", "compare_swap") else 32
    body = inline if inline is not None else b"".join(sge(*one) for one in sges)
    if inline is not None:
        flags |= INLINE
    if local or remote:
        flags |= FLAGS
    head = bytearray(place(
        first, (0, 1, OPCODE[opcode]), (1, 1, flags), (3, 1, len(sges)), (4, 4, len(inline or b"")), (8, 8, identifier), (16, 8, remote_to),
        (24, 4, remote_stag), (28, 4, immediate),
    ))
    blocks = bytearray(whole_blocks(bytes(head) + body))
    if operands:
        blocks[32:48] = place(16, (0, 8, operands[0]), (8, 8, operands[1]))
    if local or remote:
        ls, lt, lv = local or (0, 0, 0)
        rs, rt, rv = remote or (0, 0, 0)
        which = bool(local) | bool(remote) << 1
        blocks += place(64, (0, 4, which), (4, 4, ls), (8, 8, lt), (16, 8, lv), (24, 4, rs), (32, 8, rt), (40, 8, rv))
    blocks[2] = len(blocks) // 64
    flag = lambda one: one and {"stag": one[0], "to": hex64(one[1]), "value": hex64(one[2])}
    return bytes(blocks), {
        "opcode": opcode, "flags": flags & (SIGNALED | FENCE | SOLICITED), "id": hex64(identifier), "remote_to": hex64(remote_to), "remote_stag": remote_stag,
        "immediate": immediate, "sges": [{"to": hex64(to), "stag": stag, "length": length} for to, stag, length in sges],
        "inline": None if inline is None else inline.hex(), "operands": [hex64(value) for value in operands or (0, 0)],
        "local": flag(local), "remote": flag(remote),
    }


def receive(identifier, sges):
    made = bytearray(whole_blocks(place(16, (3, 1, len(sges)), (8, 8, identifier)) + b"".join(sge(*one) for one in sges)))
    made[2] = len(made) // 64
    return bytes(made), {"id": hex64(identifier), "sges": [{"to": hex64(to), "stag": stag, "length": length} for to, stag, length in sges]}


def work_requests():
    rows = []
    good = lambda queue, name, made: rows.append({"name": name, "queue": queue, "bytes": made[0].hex(), "fields": made[1]})
    many = [(0x7F00_0000_0000 + 4096 * at, 0x100 * at + 0x5A, 64 + at) for at in range(30)]
    top64, top32 = (1 << 64) - 1, (1 << 32) - 1
    good("send", "Write of one SGE", send("write", 1, remote_to=0x1000, remote_stag=0x25A, sges=many[:1]))
    good("send", "Write of two SGEs, one block", send("write", 2, remote_to=0x1000, remote_stag=0x25A, sges=many[:2]))
    good("send", "Write of three SGEs, two blocks", send("write", 3, remote_to=0x1000, remote_stag=0x25A, sges=many[:3]))
    good("send", "Write of 30 SGEs, eight blocks", send("write", 4, remote_to=0x1000, remote_stag=0x25A, sges=many))
    good("send", "Write of no byte", send("write", 5, flags=0, remote_to=top64, remote_stag=top32))
    for length in (0, 1, 32, 33, 64, 96, 97, 480):
        good("send", f"Send of {length} inline bytes", send("send", 6, flags=SIGNALED | SOLICITED, inline=pattern(length)))
    good("send", "Write with Immediate", send("write_immediate", 7, remote_to=0x2000, remote_stag=0x35A, immediate=0xCAFEF00D, sges=many[:1]))
    good("send", "Send with Immediate", send("send_immediate", 8, immediate=0x01020304, inline=b"hello"))
    good("send", "Send with Invalidate", send("send_invalidate", 9, immediate=0x777, sges=many[:1]))
    good("send", "Read with a fence", send("read", 10, flags=SIGNALED | FENCE, remote_to=0x3000, remote_stag=0x45A, sges=many[:2]))
    good("send", "FetchAdd", send("fetch_add", 11, remote_to=0x3008, remote_stag=0x45A, sges=[(0x10, 0x5A, 8)], operands=(1, 0)))
    good("send", "CmpSwap", send("compare_swap", 12, remote_to=0x3010, remote_stag=0x45A, sges=[(0x18, 0x5A, 8)], operands=(top64, 7)))
    good("send", "Bind", send("bind", 13, remote_to=0x5000, remote_stag=0x911, immediate=3 | 1 << 31, operands=(0x25A, 0x1_0000_0000)))
    good("send", "Invalidate", send("invalidate", 14, immediate=0x911))
    good("send", "No operation", send("nop", top64))
    local, remote = (0x5A, 0x8000, 0x1111_2222_3333_4444), (0x15A, 0x9000, top64)
    good("send", "PUSH with both flags", send("write", 15, remote_to=0x1000, remote_stag=0x15A, sges=many[:1], local=local, remote=remote))
    good("send", "PUSH of inline data with a remote flag", send("write", 16, flags=0, remote_to=0x1000, remote_stag=0x15A, inline=pattern(480), remote=remote))
    good("send", "PULL with a local flag", send("read", 17, flags=0, remote_to=0x1000, remote_stag=0x15A, sges=many[:3], local=local))
    datagram = dict(remote_to=3 | 0x1234 << 32, remote_stag=0x1111_1111)
    good("send", "datagram", send("send", 18, inline=pattern(64), **datagram))
    for count in (0, 1, 3, 4, 7, 30):
        good("receive", f"receive of {count} SGEs", receive(0x100 + count, many[:count]))
    return rows


def completions():
    rows = []

    def good(name, phase=0, status=0, done="send", identifier=1, qp=2, length=0, immediate=None, invalidated=None, source=None, cause=None):
        bits = (immediate is not None) | (invalidated is not None) << 1 | phase << 7
        word = immediate if immediate is not None else invalidated or 0
        detail = 0 if cause is None else cause[0] << 12 | cause[1] << 8 | cause[2]
        peer, source_qp = source or (0, 0)
        made = place(
            32, (0, 8, identifier), (8, 1, status), (9, 1, OPCODE[done]), (10, 1, bits), (12, 2, qp), (14, 2, source_qp), (16, 4, length),
            (20, 4, word), (24, 4, peer), (28, 2, detail),
        )
        rows.append({"name": name, "bytes": made.hex(), "fields": {
            "phase": phase, "status": status, "done": done, "id": hex64(identifier), "qp": qp, "length": length, "immediate": immediate,
            "invalidated": invalidated, "source": source, "cause": cause,
        }})

    good("a Send was sent", identifier=0x1122_3344_5566_7788)
    good("a Read came back, first lap", phase=1, done="read", length=1 << 31)
    good("a Send was received", done="received", qp=0xFFFF, length=64)
    good("with Immediate", phase=1, done="received", length=64, immediate=0xCAFEF00D)
    good("with Invalidate", done="received", length=64, invalidated=0x911)
    good("a Write with Immediate was received", done="received_write", length=4096, immediate=0)
    good("a datagram was received", phase=1, done="received", length=40 + 64, source=[3, 0x1234])
    good("a Write was refused", status=10, done="write", cause=[1, 1, 1])
    good("a Read was refused", status=10, done="read", cause=[0, 1, 2])
    for status in (1, 2, 4, 5, 6, 7, 9, 11, 12, 13, 19):
        good(f"failed with status {status}", status=status, done="write")
    return rows

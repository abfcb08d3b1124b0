"""DDP segments with RDMAP, as RFC 5040, 5041 and 7306 and docs/rnic.md draw them: the payloads of records of kind 3."""

from derive_tlps import hex64, pack, pattern

OPCODE = {
    "write": 0, "read_request": 1, "read_response": 2, "send": 3, "send_invalidate": 4, "send_solicited": 5,
    "send_solicited_invalidate": 6, "terminate": 7, "immediate": 8, "immediate_solicited": 9, "atomic_request": 10,
    "atomic_response": 11, "synchronise": 12, "acknowledge": 13, "send_immediate": 14, "send_solicited_immediate": 15,
}


def control(tagged, last, opcode, dv=1, rv=1, reserved=0):
    return pack(
        (1, tagged), (1, last), (4, reserved and 15), (2, dv), (2, rv), (2, reserved and 3), (4, OPCODE.get(opcode, opcode)),
    )


def tagged(opcode, qp, stag, to, data=b"", last=True, **bits):
    made = pack((16, qp)) + control(1, last, opcode, **bits) + pack((32, stag), (64, to)) + data
    return made, {"opcode": opcode, "qp": qp, "last": last, "stag": stag, "to": hex64(to), "data": data.hex()}


def untagged(opcode, qp, qn, msn, mo=0, data=b"", last=True, ulp=0, body=None, **bits):
    made = pack((16, qp)) + control(0, last, opcode, **bits) + pack((32, ulp), (32, qn), (32, msn), (32, mo)) + data
    fields = {"opcode": opcode, "qp": qp, "last": last, "ulp": ulp, "qn": qn, "msn": msn, "mo": mo, "data": data.hex()}
    if body is not None:
        fields["body"] = body
    return made, fields


def read_request(sink_stag, sink_to, length, source_stag, source_to):
    made = pack((32, sink_stag), (64, sink_to), (32, length), (32, source_stag), (64, source_to))
    return made, {
        "sink_stag": sink_stag, "sink_to": hex64(sink_to), "length": length, "source_stag": source_stag,
        "source_to": hex64(source_to),
    }


def atomic(code, identifier, stag, to, operand, mask, compare, compare_mask, before, after):
    made = pack(
        (28, 0), (4, code), (32, identifier), (32, stag), (64, to), (64, operand), (64, mask), (64, compare), (64, compare_mask),
    )
    return made, {
        "code": code, "identifier": identifier, "stag": stag, "to": hex64(to), "operand": hex64(operand), "mask": hex64(mask),
        "compare": hex64(compare), "compare_mask": hex64(compare_mask), "before": hex64(before), "after": hex64(after),
    }


def terminate(layer, kind, code, length=None, ddp=b"", rdmap=b""):
    made = pack(
        (4, layer), (4, kind), (8, code), (1, length is not None), (1, bool(ddp)), (1, bool(rdmap)), (13, 0),
    ) + (b"" if length is None else pack((16, length))) + ddp + rdmap
    return made, {"layer": layer, "kind": kind, "code": code, "segment_bytes": length, "ddp": ddp.hex(), "rdmap": rdmap.hex()}


def segments():
    rows = []
    top32, top64 = (1 << 32) - 1, (1 << 64) - 1

    def good(name, made, canonical=True):
        rows.append({"name": name, "bytes": made[0].hex(), "fields": made[1], "canonical": canonical})

    def bad(name, error, made):
        rows.append({"name": name, "bytes": (made[0] if isinstance(made, tuple) else made).hex(), "error": error})

    good("Write", tagged("write", 2, 0x1234_5678, 0x7FFF_0000_1000, pattern(64)))
    good("Write, not the last segment", tagged("write", 2, 0x1234_5678, 0x1000, pattern(8), last=False))
    good("Write of no byte", tagged("write", 2, 0x1234_5678, 0))
    good("Write, every number at its highest", tagged("write", 0xFFFF, top32, top64, b"\xff"))
    good("Read Response", tagged("read_response", 3, 0xF000_0102, 0, pattern(16)))
    for at, opcode in enumerate(("send", "send_solicited")):
        good(f"{opcode}", untagged(opcode, 2, 0, 1 + at, data=pattern(5)))
        good(f"{opcode}, in the middle", untagged(opcode, 2, 0, 1 + at, mo=1376, data=pattern(8), last=False))
    for opcode in ("send_invalidate", "send_solicited_invalidate"):
        good(f"{opcode}", untagged(opcode, 2, 0, top32, data=pattern(3), ulp=0xABCD_EF01))
    for opcode in ("send_immediate", "send_solicited_immediate"):
        good(f"{opcode}", untagged(opcode, 2, 0, 7, data=pattern(3), ulp=0x0102_0304))
    for opcode in ("immediate", "immediate_solicited"):
        good(f"{opcode}", untagged(opcode, 2, 0, 8, data=pack((32, 0), (32, 0xCAFE_F00D))))
    made, body = read_request(0xF000_0001, 0, 1 << 20, 0x0000_0200, 0x1000)
    good("Read Request", untagged("read_request", 2, 1, 1, data=made, body=body))
    made, body = read_request(top32, top64, top32, top32, top64)
    good("Read Request, every number at its highest", untagged("read_request", 2, 1, top32, data=made, body=body))
    add = lambda *rest: atomic(0, 5, 0x200, 0x1008, *rest)
    swap = lambda *rest: atomic(2, 6, 0x200, 0x1010, *rest)
    for name, (made, body) in (
        ("FetchAdd", add(3, 0, 0, 0, 40, 43)),
        ("FetchAdd that wraps", add(2, 0, 0, 0, top64, 1)),
        ("FetchAdd in two fields", add(0x0000_0001_0000_0001, 0x8000_0000_8000_0000, 0, 0, 0x0000_0007_FFFF_FFFF, 0x0000_0008_0000_0000)),
        ("CmpSwap that is equal", swap(9, top64, 4, top64, 4, 9)),
        ("CmpSwap that is not", swap(9, top64, 4, top64, 5, 5)),
        ("CmpSwap of a part, equal in a part", swap(0x1234, 0xFF, 0xAA00, 0xFF00, 0xAABB, 0xAA34)),
    ):
        good(name, untagged("atomic_request", 2, 1, 2, data=made, body=body))
    good("Atomic Response", untagged("atomic_response", 3, 3, 1, data=pack((32, 5), (64, 40)), body={"identifier": 5, "value": hex64(40)}))
    read = read_request(0xF000_0001, 0, 64, 0x200, 0x1000)[0]
    for name, (made, body) in (
        ("Terminate without headers", terminate(0, 0, 0)),
        ("Terminate with a tagged header", terminate(1, 1, 1, 78, tagged("write", 0, 0x200, 0x1000)[0][2:])),
        ("Terminate with an untagged header", terminate(1, 2, 2, 18, untagged("send", 0, 0, 9)[0][2:])),
        ("Terminate with the header of a Read", terminate(0, 1, 2, 46, untagged("read_request", 0, 1, 3)[0][2:], read)),
    ):
        good(name, untagged("terminate", 2, 2, 1, data=made, body=body))
    good("Synchronise, restart", untagged("synchronise", 2, 4, 17, mo=5, ulp=1))
    good("Synchronise, question", untagged("synchronise", 2, 4, 17, mo=6))
    good("Acknowledge, taken", untagged("acknowledge", 2, 4, 17, body={"verdict": "taken"}))
    good("Acknowledge, not ready", untagged("acknowledge", 2, 4, 17, mo=640, ulp=1, body={"verdict": "not_ready", "wait_us": 640}))
    good("Acknowledge, no QP", untagged("acknowledge", 0, 4, 5, mo=0xFFFF, ulp=2, body={"verdict": "no_qp", "qp": 0xFFFF}))
    good("datagram", untagged("send", 9, 0, 0, data=pack((32, 0x1111_1111), (16, 12), (16, 0)) + pattern(4), body={
        "q_key": 0x1111_1111, "source_qp": 12, "datagram": pattern(4).hex(),
    }))
    good("reserved bits set, tagged", tagged("write", 2, 1, 2, b"\x01", reserved=1), canonical=False)
    good("reserved bits set, untagged", untagged("send", 2, 0, 1, data=b"\x01", reserved=1), canonical=False)

    bad("no byte", "truncated", b"")
    bad("tagged without the last byte of its header", "truncated", tagged("write", 2, 1, 2)[0][:-1])
    bad("untagged without the last byte of its header", "truncated", untagged("send", 2, 0, 1)[0][:-1])
    for version in (0, 2, 3):
        bad(f"DDP version {version}, tagged", "ddp_version_tagged", tagged("write", 2, 1, 2, dv=version))
        bad(f"DDP version {version}, untagged", "ddp_version_untagged", untagged("send", 2, 0, 1, dv=version))
        bad(f"RDMAP version {version}", "rdmap_version", tagged("write", 2, 1, 2, rv=version))
    for qn in (5, top32):
        bad(f"queue {qn}", "queue", untagged("send", 2, qn, 1))
    for opcode, number in OPCODE.items():
        queue = {"read_request": 1, "atomic_request": 1, "terminate": 2, "atomic_response": 3, "synchronise": 4, "acknowledge": 4}.get(opcode, 0)
        if opcode in ("write", "read_response"):
            bad(f"{opcode}, untagged", "opcode", untagged(opcode, 2, 0, 1))
        else:
            bad(f"{opcode}, tagged", "opcode", tagged(opcode, 2, 1, 2))
            bad(f"{opcode} in the next queue", "opcode", untagged(opcode, 2, (queue + 1) % 5, 1))
    return rows

"""Discovery and assignment of docs/wire.md, section 12, and the messages of leases of section 8, as derive.py's other rows."""

from derive_tlps import hex64, pack, pattern

MESSAGE = {"heartbeat": 1, "order": 2, "outcome": 3, "relayed": 4}
ROLE = {"host": 1, "box": 2}
STATE = {"free": 0, "used": 1, "kept": 2, "moving": 3}
PROGRESS = {"working": 1, "done": 2, "refused": 3, "rolled_back": 4}
REASON = {
    "none": 0, "unknown_device": 1, "unknown_host": 2, "silent_host": 3, "busy": 4, "not_released": 5, "not_taken": 6, "too_many": 7,
    "not_permitted": 8, "not_an_owner": 9,
}
STEP = {"none": 0, "recall": 1, "offer": 2}
A, B, TOP = 0x00112233445566778899AABBCCDDEEFF, 0xFFEEDDCCBBAA99887766554433221100, (1 << 128) - 1


def text(value, length):
    return value.encode().ljust(length, b"\0")


def node(value):
    return f"{value:032x}" if value else None


def port(kind, address, number=0, reserved=0):
    """`address` is the bytes of the address."""
    code = {"mac": 1, "udp4": 2, "udp6": 3, "ring": 4}.get(kind, kind)
    made = pack((8, code), (8, reserved), (16, number)) + address.ljust(16, b"\0")
    return made, {"kind": kind, "address": address.hex(), "port": number}


MAC = port("mac", bytes.fromhex("020000000001"))
UDP4 = port("udp4", bytes([10, 0, 0, 2]), 4700)
UDP6 = port("udp6", bytes.fromhex("fd000000000000000000000000000001"), 0xFFFF)
RING = port("ring", pack((32, 0x01020304)))


def device(name, serial, vendor, ident, class_code, state, size, epoch, owner, assigned, group, reserved=0, host=0, owners=False):
    """`assigned` is "group", "nobody" or the node of a host; `host` fills the host's place where there is none."""
    code = {"group": 0, "nobody": 2}.get(assigned, 1) if not isinstance(assigned, tuple) else assigned[0]
    if not isinstance(assigned, (str, tuple)):
        host = assigned
    made = text(name, 32) + text(serial, 24) + pack(
        (16, vendor), (16, ident), (24, class_code), (8, STATE.get(state, state)), (64, size), (64, epoch), (128, owner),
        (8, code), (8, (reserved & 0xFE) | owners), (16, group), (32, reserved), (128, host),
    )
    fields = {
        "name": name, "serial": serial, "vendor": vendor, "device": ident, "class": f"{class_code:06x}", "state": state,
        "bytes": hex64(size), "epoch": hex64(epoch), "owner": node(owner),
        "assigned": assigned if isinstance(assigned, (str, tuple)) else node(assigned), "group": group, "has_owners": owners,
    }
    return made, fields


DISK = device("disk0", "ES0001", 0x1D0F, 0x8061, 0x010802, "used", 1 << 40, 7, A, "group", 12)


def heartbeat(role, link, group, interval, sent, generation, all_, first, name, ports=(), devices=(), here=None, count=None, reserved=0):
    made = pack(
        (8, ROLE.get(role, role)), (8, link), (16, group), (16, interval), (16, first), (16, all_),
        (8, len(devices) if here is None else here), (8, len(ports) if count is None else count), (32, generation), (32, sent), (32, reserved),
    ) + text(name, 32) + b"".join(made for made, _ in ports) + b"".join(made for made, _ in devices)
    fields = {
        "role": role, "link": link, "group": group, "interval_ms": interval, "sent": sent, "generation": generation, "all": all_,
        "first": first, "name": name, "ports": [fields for _, fields in ports], "devices": [fields for _, fields in devices],
    }
    return made, fields


def order(change, number, to, name, dry_run=False, force=False, group=0, host=0, flags=0, reserved=0, life=0x4142434445464748):
    code = {"host": 1, "group": 2, "nobody": 3, "anybody": 4}.get(change, change)
    made = pack(
        (8, code), (8, flags | dry_run | force << 1), (16, group), (32, reserved), (64, number), (128, to), (128, host),
    ) + text(name, 32) + pack((64, life))
    fields = {
        "change": change, "number": hex64(number), "to": f"{to:032x}", "life": hex64(life), "device": name, "dry_run": dry_run, "force": force,
        "host": node(host) if change == "host" else None, "group": group if change == "group" else 0,
    }
    return made, fields


def outcome(progress, reason, step, elapsed, number, life, epoch, asker, old, new, reserved=0):
    made = pack(
        (8, PROGRESS.get(progress, progress)), (8, REASON.get(reason, reason)), (8, STEP.get(step, step)), (8, reserved), (32, elapsed),
        (64, number), (64, life), (64, epoch), (128, asker), (128, old), (128, new),
    )
    fields = {
        "progress": progress, "reason": reason, "step": step, "elapsed_ms": elapsed, "number": hex64(number), "asker_life": hex64(life),
        "epoch": hex64(epoch), "asker": f"{asker:032x}", "from": node(old), "to": node(new),
    }
    return made, fields


def frame(message, body, life=1, sequence=0, sender=A, version=1, kind=8, flags=0, reserved=0, length=None):
    return pack(
        (4, version), (4, kind), (8, MESSAGE.get(message, message)), (16, len(body) if length is None else length),
        (8, flags), (24, reserved), (64, life), (64, sequence), (128, sender),
    ) + body


def discovery(crc32c):
    """Rows for discovery.json; `crc32c` is derive.py's."""
    rows = []

    def checked(made):
        return made + pack((32, crc32c(made)))

    def good(name, message, body, life=1, sequence=0, sender=A, canonical=True, behind=b"", reserved=0):
        rows.append({
            "name": name, "bytes": (checked(frame(message, body[0], life, sequence, sender, reserved=reserved)) + behind).hex(),
            "message": message, "life": hex64(life), "sequence": hex64(sequence), "node": f"{sender:032x}", "fields": body[1],
            "canonical": canonical and not behind,
        })

    def bad(name, error, made):
        rows.append({"name": name, "bytes": made.hex(), "error": error})

    def refused(name, message, body):
        bad(name, "refused", checked(frame(message, body[0] if isinstance(body, tuple) else body)))

    host = heartbeat("host", 0, 12, 100, 3, 0, 0, 0, "host-a", [MAC])
    good("Heartbeat of a host", "heartbeat", host, 0x0102030405060708, 0x1112131415161718)
    good("Heartbeat of a host in no group, without a port", "heartbeat", heartbeat("host", 0, 0, 100, 0, 0, 0, 0, "h"))
    good("Heartbeat of a node that stops", "heartbeat", heartbeat("host", 0, 12, 0, 9, 0, 0, 0, "host-a", [MAC]))
    box = heartbeat("box", 1, 0, 100, 0x21222324, 0x31323334, 1, 0, "box-1", [MAC, UDP4, UDP6, RING], [DISK])
    good("Heartbeat of a box with every kind of port", "heartbeat", box, sender=B)
    free = device("disk1", "", 0xFFFF, 0xFFFF, 0xFFFFFF, "free", (1 << 64) - 1, (1 << 64) - 1, 0, "nobody", 0)
    kept = device("0123456789abcdef0123456789abcdef", "0123456789abcdef01234567", 1, 2, 3, "kept", 0, 0, TOP, A, 4000)
    moving = device("größer", "Nr. 7", 1, 2, 3, "moving", 4096, 1, B, B, 1, owners=True)
    good("Heartbeat with the middle of a list", "heartbeat", heartbeat("box", 3, 4000, 65535, (1 << 32) - 1, (1 << 32) - 1, 1024, 9, "box", [UDP4], [free, kept, moving]))
    good("Heartbeat with the end of a list", "heartbeat", heartbeat("box", 0, 1, 1, 0, 1, 1024, 1023, "box", [UDP4], [free]))
    good("Heartbeat with no device of a list", "heartbeat", heartbeat("box", 0, 1, 1, 0, 1, 1024, 1024, "box"))
    good("Heartbeat, bytes behind the lists", "heartbeat", (box[0] + pattern(7, 1), box[1]), canonical=False)
    good("Heartbeat, reserved bits set", "heartbeat", heartbeat("box", 0, 1, 100, 0, 0, 1, 0, "b", [port("ring", pack((32, 5)), reserved=0xFF)], [device("d", "", 1, 2, 3, "free", 0, 0, 0, "group", 1, reserved=0xFF, host=A)], reserved=TOP & 0xFFFFFFFF), canonical=False, reserved=0xFFFFFF)
    good("Heartbeat, padding behind the check", "heartbeat", host, behind=bytes(20))

    good("Order, to a host", "order", order("host", 0x0102030405060708, B, "disk0", host=A))
    good("Order, to a group", "order", order("group", 1, B, "disk0", group=4000, force=True))
    good("Order, to nobody, as a question", "order", order("nobody", 2, B, "disk0", dry_run=True))
    good("Order, to anybody", "order", order("anybody", 3, B, "disk0"))
    good("Order, reserved and unused bits set", "order", order("nobody", 2, B, "disk0", dry_run=True, force=True, group=5, host=A, reserved=0xFFFFFFFF), canonical=False)
    good("Outcome", "outcome", outcome("done", "none", "none", 0x01020304, 0x1112131415161718, 0x2122232425262728, 0x3132333435363738, A, B, A), sender=B)
    for progress in PROGRESS:
        good(f"Outcome, {progress}", "outcome", outcome(progress, "none", "recall", 0, 1, 1, 1, A, 0, 0))
    for reason in REASON:
        good(f"Outcome, reason {reason}", "outcome", outcome("refused", reason, "none", 0, 1, 1, 1, A, TOP, 0))
    for step in STEP:
        good(f"Outcome, step {step}", "outcome", outcome("working", "none", step, 0, 1, 1, 1, A, 0, TOP))
    good("Outcome, reserved byte set", "outcome", outcome("working", "none", "offer", 0, 1, 1, 1, A, 0, 0, reserved=0xFF), canonical=False)

    inner = checked(frame("heartbeat", host[0], 5, 6, A))
    good("Heartbeat relayed", "relayed", (UDP4[0] + inner, {"port": UDP4[1], "frame": inner.hex()}), sender=B)

    whole = checked(frame("heartbeat", host[0]))
    bad("no byte", "truncated", b"")
    bad("header without its last byte", "truncated", whole[:39])
    bad("body without its last byte", "truncated", whole[:-5])
    bad("check missing", "truncated", whole[:-4])
    bad("check without its last byte", "truncated", whole[:-1])
    bad("body length beyond the frame", "truncated", frame("heartbeat", host[0], length=0xFFFF))
    bad("check with its last bit turned", "check", whole[:-1] + bytes([whole[-1] ^ 1]))
    for at in (8, 16, 24, 40, len(whole) - 5):
        bad(f"byte {at} damaged", "check", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
    for version in (0, 2, 15):
        bad(f"version {version}", "version", checked(frame("heartbeat", host[0], version=version)))
    for kind in (0, 3, 9, 15):
        bad(f"kind {kind}", "kind", checked(frame("heartbeat", host[0], kind=kind)))
    for message in (0, 5, 255):
        bad(f"message {message}", "kind", checked(frame(message, host[0])))
    for flags in (1, 0x80):
        bad(f"flags {flags:#04x}", "flags", checked(frame("heartbeat", host[0], flags=flags)))

    plain = dict(role="box", link=0, group=1, interval=100, sent=0, generation=0, all_=1, first=0, name="box")

    def wrong(what, /, ports=(MAC,), devices=(DISK,), **changed):
        refused(f"Heartbeat, {what}", "heartbeat", heartbeat(**{**plain, **changed}, ports=ports, devices=devices))

    refused("Heartbeat without its last byte", "heartbeat", box[0][:-1])
    refused("Heartbeat without a body", "heartbeat", b"")
    wrong("role 0", role=0)
    wrong("role 3", role=3)
    wrong("link 4", link=4)
    wrong("group 4001", group=4001)
    wrong("without a name", name="")
    wrong("name with a line feed", name="a\nb")
    wrong("more devices here than in all", all_=0)
    wrong("devices beyond the end of the list", first=1)
    wrong("a list of 1025", all_=1025)
    wrong("a device less than it says", here=2, all_=2)
    wrong("5 ports", ports=(MAC,) * 5)
    wrong("a port less than it says", count=4)
    wrong("port of kind 0", ports=(port(0, b""),))
    wrong("port of kind 5", ports=(port(5, b""),))
    good_device = dict(name="d", serial="S", vendor=1, ident=2, class_code=3, state="free", size=0, epoch=0, owner=0, assigned="group", group=0)
    for name, changed in (
        ("without a name", {"name": ""}), ("serial number with a DEL", {"serial": "a\x7f"}), ("bytes behind its serial number's end", {"serial": "a\0b"}),
        ("state 4", {"state": 4}), ("assigned 3", {"assigned": (3,)}), ("assigned to host 0", {"assigned": (1,)}), ("group 4001", {"group": 4001}),
    ):
        wrong(f"device {name}", devices=(device(**{**good_device, **changed}),))

    refused("Order without its last byte", "order", order("nobody", 2, B, "disk0")[0][:-1])
    refused("Order, change 0", "order", order(0, 2, B, "disk0"))
    refused("Order, change 5", "order", order(5, 2, B, "disk0"))
    refused("Order, to host 0", "order", order("host", 2, B, "disk0"))
    refused("Order, to group 0", "order", order("group", 2, B, "disk0"))
    refused("Order, to group 4001", "order", order("group", 2, B, "disk0", group=4001))
    refused("Order, flag 4", "order", order("nobody", 2, B, "disk0", flags=4))
    refused("Order without a name", "order", order("nobody", 2, B, ""))
    refused("Outcome without its last byte", "outcome", outcome("done", "none", "none", 0, 1, 1, 1, A, 0, 0)[0][:-1])
    for progress in (0, 5):
        refused(f"Outcome, progress {progress}", "outcome", outcome(progress, "none", "none", 0, 1, 1, 1, A, 0, 0))
    refused("Outcome, reason 10", "outcome", outcome("done", 10, "none", 0, 1, 1, 1, A, 0, 0))
    refused("Outcome, step 3", "outcome", outcome("done", "none", 3, 0, 1, 1, 1, A, 0, 0))
    refused("Relayed, port of kind 0", "relayed", port(0, b"")[0] + inner)
    refused("Relayed without its port's last byte", "relayed", UDP4[0][:-1])
    return rows


def messages(good, bad):
    """Rows for control.json."""

    def member(group, reserved=0):
        return pack((8, 9), (8, reserved), (16, group)), {"message": "member", "group": group}

    def recall(window, reserved=0):
        return pack((8, 10), (8, reserved), (16, window)), {"message": "recall", "window_ms": window}

    def keep(reserved=0):
        return pack((8, 11), (24, reserved)), {"message": "keep"}

    def domain(number, reserved=0):
        return pack((8, 12), (8, reserved), (16, number)), {"message": "domain", "domain": number}

    def reach(window, address, size, behind, ports, reserved=0, count=None):
        made = pack(
            (8, 13), (8, window), (8, len(ports) if count is None else count), (40, reserved), (64, address), (64, size), (128, behind),
        ) + b"".join(made for made, _ in ports)
        there = {"address": hex64(address), "bytes": hex64(size), "node": node(behind), "ports": [fields for _, fields in ports]}
        return made, {"message": "reach", "window": window, "behind": there if size else None}

    def reached(everything, reserved=0):
        return pack((8, 14), (8, everything), (16, reserved)), {"message": "reached", "all": bool(everything)}

    def admit(number, epoch, stream, function, source, reserved=0):
        made = pack((8, 15), (8, reserved), (16, number), (32, epoch), (16, stream), (16, function), (32, reserved), (128, source))
        ident = f"{function >> 8:02x}:{function >> 3 & 31:02x}.{function & 7}"
        return made, {"message": "admit", "domain": number, "epoch": epoch, "stream": stream, "function": ident, "node": node(source)}

    def join(stream, epoch, of_stream, host, reserved=0):
        made = pack((8, 16), (8, reserved), (16, stream), (32, epoch), (16, of_stream), (48, reserved), (128, host))
        return made, {"message": "join", "stream": stream, "epoch": epoch, "of_stream": of_stream, "host": node(host)}

    gone = reach(63, 0, 0, 0, [])
    for name, made, odd in (
        ("Reach by Ethernet", reach(0, 1 << 40, 1 << 25, B, [MAC]), reach(0, 1 << 40, 1 << 25, B, [MAC], (1 << 40) - 1)),
        ("Reach by all kinds of ports", reach(63, 0xFFFFFFFFFFFFF000, 0xFFF, TOP, [MAC, UDP4, UDP6, RING]), None),
        ("Reach, gone", gone, reach(63, 1, 0, 0, [], 1)),
        ("Reached, all", reached(1), reached(1, 0xFFFF)), ("Reached, not all", reached(0), None),
        ("Admit", admit(1, 0x21222324, 1, 0x0300, A), admit(1, 0x21222324, 1, 0x0300, A, 0xFF)),
        ("Admit, the last", admit(0xFFFF, (1 << 32) - 1, 0xFFFF, 0xFFFF, TOP), None), ("Admit, not any more", admit(0, 1, 1, 0, 1), None),
        ("Join", join(1, 0x21222324, 2, A), join(1, 0x21222324, 2, A, 0xFF)), ("Join, the last", join(0xFFFF, (1 << 32) - 1, 0xFFFF, TOP), None),
        ("Member of group 1", member(1), member(1, 0xFF)), ("Member of group 4000", member(4000), None), ("Member of no group", member(0), None),
        ("Recall, gone", recall(0), recall(0, 0xFF)), ("Recall, the longest", recall(0xFFFF), None), ("Keep", keep(), keep(0xFFFFFF)),
        ("Domain 1", domain(1), domain(1, 0xFF)), ("Domain, the last", domain(0xFFFF), None), ("Domain, none", domain(0), None),
    ):
        good("message", name, made)
        if odd:
            good("message", f"{name}, reserved byte set", odd, canonical=False)
        bad("message", f"{name} without its last byte", made[0][:-1])
    for name, made in (
        ("Reach, window 64", reach(64, 0, 1, B, [MAC])), ("Reach without ports", reach(0, 0, 1, B, [])),
        ("Reach with 5 ports", reach(0, 0, 1, B, [MAC] * 5)), ("Reach with more ports than there are", reach(0, 0, 1, B, [MAC], count=2)),
        ("Reach of node 0", reach(0, 0, 1, 0, [MAC])), ("Reach up to 2^64", reach(0, (1 << 64) - 1, 1, B, [MAC])),
        ("Reach with a port of kind 0", reach(0, 0, 1, B, [port(0, b"")])), ("Reached, state 2", reached(2)),
        ("Admit on stream 0", admit(1, 1, 0, 0, A)), ("Admit of epoch 0", admit(1, 0, 1, 0, A)), ("Admit of node 0", admit(1, 1, 1, 0, 0)),
        ("Join of stream 0", join(0, 1, 1, A)), ("Join for stream 0", join(1, 1, 0, A)), ("Join for epoch 0", join(1, 0, 1, A)),
        ("Join for node 0", join(1, 1, 1, 0)),
    ):
        bad("message", name, made[0])
    bad("message", "Member of group 4001", member(4001))

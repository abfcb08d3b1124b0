"""The vectors of TLPs, put together field by field from PCIe Base 6.0, 2.2. A part of derive.py."""


def pack(*fields):
    """Bytes of fields, each (width in bits, value), in the order in which they are drawn."""
    value = width = 0
    for bits, content in fields:
        content = int(content)
        assert 0 <= content < 1 << bits, (bits, content)
        value, width = value << bits | content, width + bits
    assert width % 8 == 0, width
    return value.to_bytes(width // 8, "big")


def hex64(value):
    """64-bit values are texts: a JSON number may not hold them."""
    return f"{value:#018x}"


def pattern(length, first=0):
    return bytes((first + i) & 0xFF for i in range(length))


FMT = {"3dw": 0b000, "4dw": 0b001, "3dw_data": 0b010, "4dw_data": 0b011}
TYPE = {
    "mem": 0b00000, "mem_locked": 0b00001, "io": 0b00010, "cfg0": 0b00100, "cfg1": 0b00101, "trusted": 0b11011,
    "cpl": 0b01010, "cpl_locked": 0b01011, "fetch_add": 0b01100, "swap": 0b01101, "cas": 0b01110,
}
STATUS = {"SC": 0b000, "UR": 0b001, "RRS": 0b010, "CA": 0b100}
ROUTING = {"to_root": 0, "by_address": 1, "by_id": 2, "from_root": 3, "local": 4, "gathered": 5}


def bdf(bus, device, function):
    return pack((8, bus), (5, device), (3, function))


def dw0(fmt, kind, length_dw, tag=0, tc=0, attr=0, ep=0, td=0, th=0, ln=0, at=0):
    """2.2.1: what all headers start with. `tag` is the whole Tag: bits 9 and 8 are here."""
    return pack(
        (3, fmt), (5, kind),
        (1, tag >> 9), (3, tc), (1, tag >> 8 & 1), (1, attr >> 2), (1, ln), (1, th),
        (1, td), (1, ep), (2, attr & 3), (2, at), (10, length_dw % 1024),
    )


def address_field(address, low=0):
    if address < 1 << 32:
        return pack((30, address >> 2), (2, low))
    return pack((62, address >> 2), (2, low))


def common_fields(tc, attr, ep):
    return {"tc": tc, "attr": attr, "ep": bool(ep)}


def id_text(identity):
    return f"{identity[0]:02x}:{identity[1]:02x}.{identity[2]}"


def enabled_bytes(length_dw, first_be, last_be):
    """Indices of the enabled bytes, straight from 2.2.5."""
    indices = []
    for index in range(4 * length_dw):
        dw = index // 4
        be = first_be if dw == 0 else last_be if dw == length_dw - 1 else 0b1111
        if be >> index % 4 & 1:
            indices.append(index)
    return indices


def memory(kind, requester, tag, address, length_dw, first_be, last_be, data=b"", tc=0, attr=0, ep=0, low=0, **odd):
    """2.2.7: a Memory Request. `odd` sets bits that the fields do not show."""
    long = address >= 1 << 32
    fmt = FMT[("4dw" if long else "3dw") + ("_data" if kind == "MWr" else "")]
    tlp = dw0(fmt, TYPE["mem"], length_dw, tag, tc, attr, ep, **odd)
    tlp += bdf(*requester) + pack((8, tag & 0xFF), (4, last_be), (4, first_be)) + address_field(address, low) + data
    enabled = enabled_bytes(length_dw, first_be, last_be)
    # A zero-length Request counts as one byte (2.3.1.1).
    start, end = (enabled[0], enabled[-1] + 1) if enabled else (0, 1)
    fields = {
        "type": kind, **common_fields(tc, attr, ep and kind == "MWr"), "requester": id_text(requester), "tag": tag,
        "address": hex64(address), "length_dw": length_dw, "first_be": first_be, "last_be": last_be, "data": data.hex(),
        "span_offset": start, "span_bytes": end - start, "contiguous": enabled == list(range(start, end)),
    }
    return tlp, fields


def atomic(kind, requester, tag, address, length_dw, data, tc=0, attr=0, ep=0, low=0, byte7=0, **odd):
    """2.2.7: an AtomicOp Request; byte 7 is reserved."""
    fmt = FMT["4dw_data" if address >= 1 << 32 else "3dw_data"]
    tlp = dw0(fmt, TYPE[kind], length_dw, tag, tc, attr, ep, **odd)
    tlp += bdf(*requester) + pack((8, tag & 0xFF), (8, byte7)) + address_field(address, low) + data
    names = {"fetch_add": "FetchAdd", "swap": "Swap", "cas": "CAS"}
    fields = {
        "type": names[kind], **common_fields(tc, attr, ep), "requester": id_text(requester), "tag": tag,
        "address": hex64(address), "length_dw": length_dw, "data": data.hex(),
    }
    return tlp, fields


def cfg(kind, requester, tag, target, register, first_be, data=b"", ep=0, res=0, low=0, length_dw=1, last_be=0, **odd):
    """2.2.7: a Configuration Request. The register number is split into 4 bits extended and 6 bits."""
    fmt = FMT["3dw_data" if data else "3dw"]
    tlp = dw0(fmt, TYPE["cfg0" if kind.endswith("0") else "cfg1"], length_dw, tag, ep=ep, **odd)
    tlp += bdf(*requester) + pack((8, tag & 0xFF), (4, last_be), (4, first_be))
    tlp += bdf(*target) + pack((4, res), (4, register >> 8), (6, register >> 2 & 0x3F), (2, low)) + data
    fields = {
        "type": kind, **common_fields(0, 0, ep and data), "requester": id_text(requester), "tag": tag,
        "target": id_text(target), "register": register, "first_be": first_be, "data": data.hex(),
    }
    return tlp, fields


def completion(
    completer, status, byte_count, requester, tag, lower_address, data=b"", tc=0, attr=0, ep=0, bcm=0, res=0,
    status_bits=None, length_dw=0, **odd
):
    """2.2.9: a Completion. Without data its Length is reserved."""
    fmt = FMT["3dw_data" if data else "3dw"]
    tlp = dw0(fmt, TYPE["cpl"], len(data) // 4 or length_dw, tag, tc, attr, ep, **odd)
    tlp += bdf(*completer)
    tlp += pack((3, STATUS[status] if status_bits is None else status_bits), (1, bcm), (12, byte_count % 4096))
    tlp += bdf(*requester) + pack((8, tag & 0xFF), (1, res), (7, lower_address)) + data
    fields = {
        "type": "CplD" if data else "Cpl", **common_fields(tc, attr, ep and data), "completer": id_text(completer),
        "status": status, "byte_count": byte_count, "requester": id_text(requester), "tag": tag,
        "lower_address": lower_address, "data": data.hex(),
    }
    return tlp, fields


def message(routing, requester, code, tag=0, last=bytes(8), data=b"", tc=0, attr=0, ep=0, length_dw=0, high_tag=0, **odd):
    """2.2.8: a Message. Its Tag has no bits 9 and 8; without data its Length is reserved."""
    fmt = FMT["4dw_data" if data else "4dw"]
    tlp = dw0(fmt, 0b10000 | ROUTING[routing], len(data) // 4 or length_dw, high_tag, tc, attr, ep, **odd)
    tlp += bdf(*requester) + pack((8, tag), (8, code)) + last + data
    fields = {
        "type": "MsgD" if data else "Msg", **common_fields(tc, attr, ep and data), "routing": routing,
        "requester": id_text(requester), "tag": tag, "code": code, "fields": last.hex(), "data": data.hex(),
    }
    return tlp, fields


def tlps():
    rows = []

    def good(name, made, canonical=True):
        tlp, fields = made
        rows.append({"name": name, "bytes": tlp.hex(), "fields": fields, "canonical": canonical})

    def odd(name, made):
        good(name, made, canonical=False)

    def bad(name, error, tlp):
        rows.append({"name": name, "bytes": (tlp[0] if isinstance(tlp, tuple) else tlp).hex(), "error": error})

    def known(name, text, made):
        """A TLP whose bytes stand in public literature: the derivation must agree with them."""
        assert made[0].hex() == text.replace(" ", ""), (name, made[0].hex())
        good(name, made)

    host, function, other = (0, 0, 0), (3, 0, 0), (0xFE, 31, 7)
    word, pair = bytes.fromhex("12345678"), pattern(8, 0xA0)

    # Worked examples of public introductions to TLPs.
    known("MWr 3DW, one DW (textbook)", "40000001 0000000f fdaff040 12345678",
          memory("MWr", host, 0, 0xFDAFF040, 1, 0xF, 0, word))
    known("MRd 3DW, one DW (textbook)", "00000001 00000c0f fdaff040",
          memory("MRd", host, 12, 0xFDAFF040, 1, 0xF, 0))
    known("CplD, one DW (textbook)", "4a000001 01000004 00000c40 12345678",
          completion((1, 0, 0), "SC", 4, host, 12, 0x40, word))

    # Header formats: 3 DW below 4 GiB, 4 DW from there on (2.2.4.1).
    good("MRd 3DW, last DW below 4 GiB", memory("MRd", function, 1, 0xFFFFFFFC, 1, 0xF, 0))
    good("MRd 4DW, first DW from 4 GiB on", memory("MRd", function, 2, 0x1_0000_0000, 1, 0xF, 0))
    good("MRd 4DW, last DW of all", memory("MRd", function, 3, 0xFFFF_FFFF_FFFF_FFFC, 1, 0xF, 0))
    good("MWr 4DW, each byte of the address another", memory("MWr", function, 4, 0x1122_3344_5566_7788, 2, 0xF, 0xF, pair))
    good("MWr 3DW, Requester with all ID fields at their highest", memory("MWr", other, 5, 0x1000, 1, 0xF, 0, word))
    good("MRd 3DW at address 0", memory("MRd", function, 6, 0, 1, 0xF, 0))

    # Length: 0 stands for 1024; up to the 4 KiB boundary and not across (2.2.7).
    good("MRd of 1024 DW, a whole page", memory("MRd", function, 7, 0x1_2345_6000, 1024, 0xF, 0xF))
    good("MRd of 1023 DW to the end of a page", memory("MRd", function, 7, 0x2004, 1023, 0xF, 0xF))
    good("MWr of 1024 DW, a whole page", memory("MWr", function, 8, 0x2_0000_0000, 1024, 0xF, 0xF, pattern(4096)))
    good("MWr of 256 DW: Length bit 8", memory("MWr", function, 8, 0x7000, 256, 0xF, 0xF, pattern(1024)))
    good("MRd of 512 DW: Length bit 9", memory("MRd", function, 8, 0x7800, 512, 0xF, 0xF))

    # Byte enables (2.2.5). One DW: any, none too.
    for be in range(16):
        good(f"MRd of one DW, first_be {be:04b}", memory("MRd", function, 9, 0x3000, 1, be, 0))
    good("MWr of zero length", memory("MWr", function, 10, 0x3000, 1, 0, 0, word))
    good("MWr of one DW with a hole", memory("MWr", function, 10, 0x3004, 1, 0b1001, 0, word))
    good("MWr of one byte, 4DW", memory("MWr", function, 10, 0x1_0000_3004, 1, 0b0100, 0, word))
    # Two DW, aligned to a QW: any, but some of each DW.
    for first, last in [(0b0001, 0b1000), (0b1010, 0b0101), (0b1000, 0b0001), (0b0111, 0b1110), (0b0110, 0b0110)]:
        good(f"MRd of an aligned QW, enables {first:04b} and {last:04b}", memory("MRd", function, 11, 0x4008, 2, first, last))
    good("MWr of an aligned QW with holes", memory("MWr", function, 11, 0x4_0000_0010, 2, 0b0101, 0b1001, pair))
    # Otherwise: one run from the first to the last enabled byte.
    for first in (0xF, 0xE, 0xC, 0x8):
        for last in (0xF, 0x7, 0x3, 0x1):
            good(f"MRd of 3 DW, enables {first:04b} and {last:04b}", memory("MRd", function, 12, 0x5004, 3, first, last))
    good("MRd of 2 DW, not QW-aligned, one run", memory("MRd", function, 12, 0x500C, 2, 0xC, 0x3))

    # Tag, Traffic Class, attributes, EP.
    for tag in (0x0FF, 0x100, 0x200, 0x2A5, 0x3FF):
        good(f"MRd, Tag {tag:#05x}", memory("MRd", function, tag, 0x6000, 1, 0xF, 0))
    for tc in (1, 2, 4, 7):
        good(f"MWr, Traffic Class {tc}", memory("MWr", function, 0, 0x6000, 1, 0xF, 0, word, tc=tc))
    for attr, name in ((1, "No Snoop"), (2, "Relaxed Ordering"), (4, "ID-based Ordering"), (7, "all attributes")):
        good(f"MWr, {name}", memory("MWr", function, 0, 0x6000, 1, 0xF, 0, word, attr=attr))
    good("MWr, poisoned", memory("MWr", function, 0, 0x6000, 1, 0xF, 0, word, ep=1))
    good("MRd 4DW, Tag, Traffic Class and attributes at their highest",
         memory("MRd", other, 0x3FF, 0xABCD_0000_6000, 4, 0xF, 0xF, tc=7, attr=7))

    # Configuration.
    target = (3, 0, 0)
    good("CfgRd0, register 0", cfg("CfgRd0", host, 0x20, target, 0x000, 0xF))
    good("CfgRd1, register 0xFFC", cfg("CfgRd1", host, 0x21, other, 0xFFC, 0xF))
    good("CfgRd1, first register of the extended space", cfg("CfgRd1", host, 0x122, (2, 4, 0), 0x100, 0xF))
    good("CfgRd1, last register of the common space", cfg("CfgRd1", host, 0x322, (2, 4, 0), 0x0FC, 0x3))
    good("CfgRd0, no byte enabled", cfg("CfgRd0", host, 0x23, target, 0x010, 0))
    good("CfgWr0, Command register", cfg("CfgWr0", host, 0x24, target, 0x004, 0x3, bytes.fromhex("06040000")))
    good("CfgWr1, one byte in the middle", cfg("CfgWr1", host, 0x25, target, 0x03C, 0x4, word))
    good("CfgWr1, poisoned, 10-bit Tag", cfg("CfgWr1", host, 0x3A5, target, 0x6A8, 0xF, word, ep=1))

    # Completions (2.2.9).
    for status in STATUS:
        good(f"Cpl, {status}", completion(function, status, 4, host, 0x31, 0))
    good("Cpl, UR, what is left is 4096 bytes", completion(function, "UR", 4096, host, 0x32, 0x7F))
    good("CplD, Byte Count 1 of a zero-length read", completion(host, "SC", 1, function, 0x33, 0x00, word))
    good("CplD, Byte Count 4096 and 64 bytes of it", completion(host, "SC", 4096, function, 0x34, 0, pattern(64)))
    good("CplD, Byte Count 4095, Lower Address 1", completion(host, "SC", 4095, function, 0x34, 0x01, pattern(64)))
    good("CplD, Lower Address 0x7F", completion(host, "SC", 9, function, 0x34, 0x7F, word))
    good("CplD, 1024 DW", completion(host, "SC", 4096, function, 0x34, 0, pattern(4096, 1)))
    good("CplD, poisoned", completion(host, "SC", 4, function, 0x35, 0x40, word, ep=1))
    for tag in (0x100, 0x200, 0x3FF):
        good(f"CplD, Tag {tag:#05x}", completion(host, "SC", 8, function, tag, 0x08, pair))
    good("CplD, Traffic Class 5 and all attributes", completion(other, "SC", 4, (5, 6, 7), 0x36, 0, word, tc=5, attr=7))
    good("Cpl, CA, all IDs at their highest", completion(other, "CA", 4, other, 0x3FF, 0x7C))

    # AtomicOps (2.2.7, 6.15): operands of 4, 8 and, for CAS, 16 bytes.
    for kind, name in (("fetch_add", "FetchAdd"), ("swap", "Swap")):
        good(f"{name}, 4 bytes, 3DW", atomic(kind, function, 0x41, 0x8004, 1, word))
        good(f"{name}, 8 bytes, 3DW", atomic(kind, function, 0x42, 0x8008, 2, pair))
        good(f"{name}, 4 bytes, 4DW", atomic(kind, function, 0x143, 0x9_0000_8004, 1, word, tc=3, attr=4))
        good(f"{name}, 8 bytes, 4DW, poisoned", atomic(kind, function, 0x243, 0x9_0000_8FF8, 2, pair, ep=1))
    for bytes_ in (4, 8, 16):
        data = pattern(2 * bytes_, bytes_)
        good(f"CAS, {bytes_} bytes, 3DW", atomic("cas", function, 0x44, 0x8000 + bytes_, bytes_ // 2, data))
        good(f"CAS, {bytes_} bytes, 4DW", atomic("cas", function, 0x44, 0xA_0000_8000 + bytes_, bytes_ // 2, data))

    # Messages (2.2.8).
    for offset, pin in enumerate("ABCD"):
        good(f"Msg, Assert_INT{pin}", message("local", function, 0x20 + offset))
        good(f"Msg, Deassert_INT{pin}", message("local", function, 0x24 + offset))
    for code, name in ((0x30, "ERR_COR"), (0x31, "ERR_NONFATAL"), (0x33, "ERR_FATAL"), (0x18, "PM_PME")):
        good(f"Msg, {name}", message("to_root", function, code))
    good("Msg, PME_Turn_Off", message("from_root", host, 0x19))
    good("Msg, PME_TO_Ack", message("gathered", function, 0x1B))
    good("MsgD, Set_Slot_Power_Limit", message("local", host, 0x50, data=bytes.fromhex("19000000")))
    good("Msg, Vendor_Defined Type 1, by ID",
         message("by_id", function, 0x7F, 0x77, bytes.fromhex("0300 1234 deadbeef".replace(" ", "")), tc=1, attr=7))
    good("MsgD, Vendor_Defined Type 0, 1024 DW",
         message("by_id", function, 0x7E, 0xFF, pattern(8), pattern(4096, 2)))
    good("MsgD, Vendor_Defined Type 1, poisoned", message("to_root", other, 0x7F, 0x01, pattern(8, 9), pair, ep=1))
    good("Msg, by address", message("by_address", function, 0x7F, 0, (0x1_2345_6789_ABC0).to_bytes(8, "big")))

    # Reserved bits: a receiver ignores them.
    odd("MRd, bits 1:0 of the address set", memory("MRd", function, 0, 0x6000, 1, 0xF, 0, low=3))
    odd("MWr 4DW, bits 1:0 of the address set", memory("MWr", function, 0, 0x1_0000_6000, 1, 0xF, 0, word, low=1))
    odd("MRd, LN set", memory("MRd", function, 0, 0x6000, 1, 0xF, 0, ln=1))
    odd("MRd, EP set though there is no data", memory("MRd", function, 0, 0x6000, 1, 0xF, 0, ep=1))
    odd("CfgRd0, EP set though there is no data", cfg("CfgRd0", host, 0, target, 0, 0xF, ep=1))
    odd("Cpl, EP set though there is no data", completion(function, "SC", 4, host, 0, 0, ep=1))
    odd("CfgRd0, reserved bits beside the register number", cfg("CfgRd0", host, 0, target, 0x10, 0xF, res=0xF, low=3))
    odd("CfgRd0, Attr[2] set", cfg("CfgRd0", host, 0, target, 0x10, 0xF, attr=4))
    odd("CfgRd0, TH set", cfg("CfgRd0", host, 0, target, 0x10, 0xF, th=1))
    odd("CplD, bit 7 beside the Lower Address", completion(host, "SC", 4, function, 0, 0x40, word, res=1))
    odd("CplD, BCM set", completion(host, "SC", 4, function, 0, 0x40, word, bcm=1))
    odd("CplD, TH and AT set", completion(host, "SC", 4, function, 0, 0x40, word, th=1, at=1))
    odd("Cpl, Length set though there is no data", completion(function, "UR", 4, host, 0, 0, length_dw=5))
    for bits in (3, 5, 6, 7):
        odd(f"Cpl, reserved status {bits:03b} counts as UR", completion(function, "UR", 4, host, 0, 0, status_bits=bits))
    odd("Msg, Length set though there is no data", message("local", function, 0x20, length_dw=1))
    odd("Msg, T9 and T8 set", message("local", function, 0x20, high_tag=0x300))
    odd("Msg, TH and AT set", message("local", function, 0x20, th=1, at=2))
    odd("FetchAdd, byte 7 set", atomic("fetch_add", function, 0, 0x8000, 1, word, byte7=0xFF))
    odd("Swap, bits 1:0 of the address set", atomic("swap", function, 0, 0x8000, 1, word, low=2))

    # What is refused, by type.
    read = memory("MRd", function, 0, 0x6000, 1, 0xF, 0)[0]
    write = memory("MWr", function, 0, 0x6000, 1, 0xF, 0, word)[0]
    long_read = memory("MRd", function, 0, 0x1_0000_6000, 1, 0xF, 0)[0]
    long_write = memory("MWr", function, 0, 0x1_0000_6000, 1, 0xF, 0, word)[0]
    config = cfg("CfgRd0", host, 0, target, 0, 0xF)[0]

    def retyped(tlp, fmt, kind):
        return pack((3, fmt), (5, kind)) + tlp[1:]

    bad("local prefix (MR-IOV) before an MRd", "prefix", pack((3, 0b100), (5, 0)) + bytes(3) + read)
    bad("end-end prefix (TPH) before an MRd", "prefix", pack((3, 0b100), (5, 0b10000)) + bytes(3) + read)
    bad("end-end prefix (PASID) before an MRd", "prefix", pack((3, 0b100), (5, 0b10001)) + bytes(3) + read)
    bad("MRd with a digest", "digest", memory("MRd", function, 0, 0x6000, 1, 0xF, 0, td=1)[0] + bytes(4))
    bad("MWr that says it has a digest", "digest", memory("MWr", function, 0, 0x6000, 1, 0xF, 0, word, td=1))
    for tlp, fmt, kind, name in [
        (read, 0, TYPE["mem_locked"], "MRdLk 3DW"), (long_read, 1, TYPE["mem_locked"], "MRdLk 4DW"),
        (read, 0, TYPE["io"], "IORd"), (write, 2, TYPE["io"], "IOWr"),
        (config, 0, TYPE["trusted"], "TCfgRd"), (write, 2, TYPE["trusted"], "DMWr 3DW"),
        (long_write, 3, TYPE["trusted"], "DMWr 4DW"),
        (config, 0, TYPE["cpl_locked"], "CplLk"), (write, 2, TYPE["cpl_locked"], "CplDLk"),
        (long_read, 1, TYPE["cfg0"], "CfgRd0 with 4 DW"), (long_write, 3, TYPE["cfg1"], "CfgWr1 with 4 DW"),
        (long_read, 1, TYPE["cpl"], "Cpl with 4 DW"), (long_write, 3, TYPE["cpl"], "CplD with 4 DW"),
        (read, 0, TYPE["fetch_add"], "FetchAdd without data"), (long_read, 1, TYPE["swap"], "Swap without data"),
        (read, 0, TYPE["cas"], "CAS without data"),
        (read, 0, 0b10000, "Msg with 3 DW"), (write, 2, 0b10100, "MsgD with 3 DW"),
        (read, 0, 0b00011, "reserved type 00011"), (read, 0, 0b01111, "reserved type 01111"),
        (write, 2, 0b11000, "reserved type 11000"), (long_read, 1, 0b11111, "reserved type 11111"),
        (read, 0b101, 0, "reserved Fmt 101"), (write, 0b110, 0, "reserved Fmt 110"), (long_write, 0b111, 0, "reserved Fmt 111"),
    ]:
        bad(name, "unsupported", retyped(tlp, fmt, kind))
    for bits in (6, 7):
        bad(f"Msg, reserved routing {bits:03b}", "reserved", retyped(message("local", function, 0x20)[0], 1, 0b10000 | bits))

    # By length.
    bad("no byte", "length", b"")
    bad("3 bytes", "length", read[:3])
    bad("first DW alone", "length", read[:4])
    bad("3DW header without its last byte", "length", read[:11])
    bad("4DW header without its last byte", "length", long_read[:15])
    bad("4DW header without its last DW", "length", long_read[:12])
    bad("MWr without data", "length", write[:12])
    bad("MWr without its last byte", "length", write[:15])
    bad("MWr with a DW too many", "length", write + bytes(4))
    bad("MWr with a byte too many", "length", write + bytes(1))
    bad("MRd with data", "length", read + bytes(4))
    bad("MWr with Length 0, that is 1024, and no data", "length", dw0(2, 0, 0) + write[4:12])
    bad("Cpl with data", "length", completion(function, "SC", 4, host, 0, 0)[0] + word)
    bad("CplD without data", "length", completion(host, "SC", 4, function, 0, 0, word)[0][:12])
    bad("CfgRd0 with Length 2", "length", cfg("CfgRd0", host, 0, target, 0, 0xF, length_dw=2))
    bad("CfgRd0 with Length 0", "length", cfg("CfgRd0", host, 0, target, 0, 0xF, length_dw=0))
    bad("CfgWr0 with Length 2 and 2 DW", "length", cfg("CfgWr0", host, 0, target, 0, 0xF, pair, length_dw=2))
    bad("CfgWr1 with Length 1 and no data", "length", cfg("CfgWr1", host, 0, target, 0, 0xF, word)[0][:12])
    bad("Msg with data", "length", message("local", function, 0x20)[0] + word)
    bad("FetchAdd of 3 DW", "length", atomic("fetch_add", function, 0, 0x8000, 3, pattern(12)))
    bad("Swap of 4 DW", "length", atomic("swap", function, 0, 0x8000, 4, pattern(16)))
    for length_dw in (1, 3, 6, 16):
        bad(f"CAS of {length_dw} DW", "length", atomic("cas", function, 0, 0x8000, length_dw, pattern(4 * length_dw)))
    bad("CAS that lacks its second operand", "length", atomic("cas", function, 0, 0x8000, 2, word))

    # By byte enables (2.2.5).
    bad("MRd of one DW with last_be", "byte_enables", memory("MRd", function, 0, 0x6000, 1, 0xF, 0x1))
    bad("MRd of one DW with last_be alone", "byte_enables", memory("MRd", function, 0, 0x6000, 1, 0, 0xF))
    for first, last in [(0, 0xF), (0xF, 0), (0, 0)]:
        bad(f"MRd of an aligned QW, enables {first:04b} and {last:04b}", "byte_enables",
            memory("MRd", function, 0, 0x6000, 2, first, last))
    for first, last in [(0x7, 0xF), (0xF, 0xE), (0xA, 0x3), (0x8, 0x5), (0x1, 0x1), (0, 0xF), (0xF, 0)]:
        bad(f"MRd of 2 DW, not QW-aligned, enables {first:04b} and {last:04b}", "byte_enables",
            memory("MRd", function, 0, 0x6004, 2, first, last))
        bad(f"MWr of 3 DW, enables {first:04b} and {last:04b}", "byte_enables",
            memory("MWr", function, 0, 0x6000, 3, first, last, pattern(12)))
    bad("MRd of 1024 DW, last_be 0", "byte_enables", memory("MRd", function, 0, 0x6000, 1024, 0xF, 0))
    bad("CfgRd0 with last_be", "byte_enables", cfg("CfgRd0", host, 0, target, 0, 0xF, last_be=0xF))

    # By address.
    bad("MRd of 2 DW across 4 KiB", "address", memory("MRd", function, 0, 0x6FFC, 2, 0xF, 0xF))
    bad("MWr of 2 DW across 4 KiB, 4DW", "address", memory("MWr", function, 0, 0x1_0000_6FFC, 2, 0x8, 0x1, pair))
    bad("MRd of 1024 DW across 4 KiB", "address", memory("MRd", function, 0, 0x6004, 1024, 0xF, 0xF))
    bad("MRd of 2 DW across the end of all addresses", "address",
        memory("MRd", function, 0, 0xFFFF_FFFF_FFFF_FFFC, 2, 0xF, 0xF))
    bad("MRd 4DW below 4 GiB", "address", long_read[:8] + pack((64, 0x6000)))
    bad("MWr 4DW just below 4 GiB", "address", long_write[:8] + pack((64, 0xFFFFFFFC)) + word)
    bad("FetchAdd 4DW below 4 GiB", "address",
        atomic("fetch_add", function, 0, 0x1_0000_8000, 1, word)[0][:8] + pack((64, 0x8000)) + word)
    bad("FetchAdd of 8 bytes, not aligned", "address", atomic("fetch_add", function, 0, 0x8004, 2, pair))
    bad("Swap of 8 bytes, not aligned, 4DW", "address", atomic("swap", function, 0, 0x1_0000_800C, 2, pair))
    bad("CAS of 8 bytes, not aligned", "address", atomic("cas", function, 0, 0x8004, 4, pattern(16)))
    bad("CAS of 16 bytes, not aligned", "address", atomic("cas", function, 0, 0x8008, 8, pattern(32)))

    # By a value that a field must not have.
    bad("MRd, TH", "reserved", memory("MRd", function, 0, 0x6000, 1, 0xF, 0, th=1))
    bad("MWr, TH", "reserved", memory("MWr", function, 0, 0x6000, 1, 0xF, 0, word, th=1))
    bad("FetchAdd, TH", "reserved", atomic("fetch_add", function, 0, 0x8000, 1, word, th=1))
    for at, name in ((1, "translation request"), (2, "translated"), (3, "reserved")):
        bad(f"MRd, AT {name}", "reserved", memory("MRd", function, 0, 0x6000, 1, 0xF, 0, at=at))
    bad("MWr 4DW, AT translated", "reserved", memory("MWr", function, 0, 0x1_0000_6000, 1, 0xF, 0, word, at=2))
    bad("Swap, AT translated", "reserved", atomic("swap", function, 0, 0x8000, 1, word, at=2))
    for name, bits in (("Traffic Class 1", {"tc": 1}), ("No Snoop", {"attr": 1}), ("Relaxed Ordering", {"attr": 2}), ("AT", {"at": 1})):
        bad(f"CfgRd0, {name}", "reserved", cfg("CfgRd0", host, 0, target, 0, 0xF, **bits))
        bad(f"CfgWr1, {name}", "reserved", cfg("CfgWr1", host, 0, target, 0, 0xF, word, **bits))
    return rows

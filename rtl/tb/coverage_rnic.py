"""What the tests of es_rnic have to bring about on each width, by name: opcodes both ways, WQEs by each way, statuses, causes of Terminates, reasons of drops, events.
What was seen goes into the file that RTL_COVERAGE names; `./run rtl test` holds it against WANTED.
"""

import json
import os

WQES = {0: "Write", 2: "Send", 4: "Send with Invalidate", 5: "Read", 10: "No operation"}
SENT = {
    0: "Write", 1: "Read Request", 2: "Read Response", 3: "Send", 4: "Send with Invalidate", 5: "Send, solicited", 6: "Send with Invalidate, solicited",
    7: "Terminate", 12: "Synchronise", 13: "Acknowledge",
}
STATUSES = {"send": (0, 1, 2, 4, 5, 7, 9, 10, 11, 12, 13), "receive": (0, 1, 4, 5)}
CAUSES = (
    "0000", "0100", "0101", "0102", "0103", "0104", "0205", "0206", "0207", "0209", "1100", "1101", "1102", "1103", "1104",
    "1201", "1202", "1203", "1204", "1205", "1206",
)
DROPS = ("truncated", "no_qp", "not_ready", "malformed", "foreign", "denied", "sequence", "answers", "too_long", "irrq", "on the fly")

EVENTS = (1, 2, 4, 5, 6, 7)

WANTED = [
    *(f"{name} leaves" for name in SENT.values()), *(f"opcode {code} comes" for code in range(16)),
    *(f"{name} from the ring" for name in WQES.values()), "no known opcode from the ring",
    *(f"{name} kicked" for name in ("Write", "Send", "Read", "No operation")), *(f"{name} stored" for name in ("Write", "Send")),
    *(f"{name} with flags {which}" for name in ("Write", "Read") for which in range(4)),
    *(f"{side} CQE of status {status}" for side, statuses in STATUSES.items() for status in statuses),
    *(f"missed: {what}" for what in ("sent", "answered", "write of the peer", "send of the peer", "not brought", "flag")),
    *(f"event {kind}" for kind in EVENTS), *(f"Terminate {cause}" for cause in CAUSES), *(f"dropped: {reason}" for reason in DROPS),
]
SEEN = set()


def cover(name):
    """Seen."""
    if name in SEEN or "RTL_COVERAGE" not in os.environ:
        return
    SEEN.add(name)
    with open(os.environ["RTL_COVERAGE"], "w") as out:
        json.dump(sorted(SEEN), out)


def cover_wqe(wqe, way):
    """A send WQE was handed over."""
    name = WQES.get(wqe[0], "no known opcode")
    cover(f"{name} {way}")
    if wqe[1] & 16 and len(wqe) >= 128:
        cover(f"{name} with flags {wqe[len(wqe) - 64] & 3}")


def cover_leaving(packet):
    """A segment left for the link."""
    cover(f"{SENT.get(packet[3] & 15, 'no known opcode')} leaves")
    if packet[3] & 15 == 7:
        cover(f"Terminate {packet[20:22].hex()}")

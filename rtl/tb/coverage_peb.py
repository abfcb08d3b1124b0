"""What the tests of es_peb have to bring about on each width, by name: TLPs of each kind both ways, what Requests end with, what control messages are answered with,
every counter but that of fences that end by time (those are test_peb_order's), and the shapes of bodies. What was seen goes into the file that RTL_COVERAGE names; `./run rtl test` holds it against WANTED.
"""

import json
import os

KINDS = {
    (0, 0): "Memory Read", (2, 0): "Memory Write", (0, 4): "Configuration Read, Type 0", (2, 4): "Configuration Write, Type 0", (0, 5): "Configuration Read, Type 1",
    (2, 5): "Configuration Write, Type 1", (0, 10): "Completion", (2, 10): "Completion with Data",
}
DOWN = ("Memory Read", "Memory Write", "Configuration Read, Type 0", "Configuration Write, Type 0", "Completion with Data", "Message")
UP = ("Memory Read", "Memory Write", "Completion", "Completion with Data", "Message")
COUNTERS = (
    "down", "down_malformed", "down_spoofed", "down_unrouted", "down_unrouted_completions", "passed", "up", "up_malformed", "up_spoofed",
    "up_refused", "stray", "attached", "denied", "unknown", "resets",
)

WANTED = [
    *(f"{kind} to the device" for kind in DOWN), *(f"{kind} to the host" for kind in UP),
    *(f"{kind} with {bits} bits of address {way}" for kind in ("Memory Read", "Memory Write") for bits, way in ((32, "to the device"), (64, "to the host"))),
    *(f"a Request of the host ends with status {status}" for status in (0, 1)), *(f"an Attach ends with status {status}" for status in range(4)),
    "Detached", "HotResetDone", "a TLP over several bodies to the hardware", "a TLP over several bodies of the hardware", "several records in a body to the hardware",
    "several records in a body of the hardware", *(f"counted: {name}" for name in COUNTERS),
]
SEEN = set()


def cover(name):
    """Seen."""
    if name in SEEN or "RTL_COVERAGE" not in os.environ:
        return
    SEEN.add(name)
    with open(os.environ["RTL_COVERAGE"], "w") as out:
        json.dump(sorted(SEEN), out)


def cover_tlp(packet, way):
    """A TLP went this way."""
    fmt, kind = packet[0] >> 5, packet[0] & 31
    name = "Message" if kind >> 3 == 2 else KINDS.get((fmt & 2, kind), "another")
    cover(f"{name} {way}")
    cover(f"{name} with {64 if fmt & 1 else 32} bits of address {way}")


def cover_counters(dut):
    """What was counted until the end of a test."""
    for name in COUNTERS:
        value = getattr(dut, f"stat_{name}").value
        if value.is_resolvable and int(value):
            cover(f"counted: {name}")

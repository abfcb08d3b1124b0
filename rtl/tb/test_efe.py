"""es_efe: two sessions' ends talk through a third party's model of a MAC, which sends at the link's rate and never waits; bodies come once and in order, whatever
the link does.
"""

import random

import cocotb
from cocotb.triggers import RisingEdge

from axis import Sink, Source, start
from mac import Link
from wire import beats, packets

FULL = 1404
# Feature bits of a Hello.
READ_AHEAD, LEASES, RDMA = 1 << 2, 1 << 3, 1 << 4


class End:
    """A user of an EFE."""

    def __init__(self, dut, name, pause=0):
        self.dut, self.name, self.width = dut, name, len(dut.a_m_mac_tdata)
        self.source = Source(dut, f"{name}_s_axis_t")
        self.sink = Sink(dut, f"{name}_m_axis_t", ["data", "keep", "last"], pause=pause)

    def signal(self, name):
        return getattr(self.dut, f"{self.name}_{name}")

    def open(self, active, classic, fresh):
        self.signal("active").value, self.signal("want_classic").value = active, classic
        self.signal("features").value = RDMA | (READ_AHEAD if active else LEASES)
        self.signal("fresh").value, self.signal("open").value = fresh, 1

    def send(self, body):
        self.source.queue.extend(beats(body, self.width))

    def bodies(self):
        items = [item for _, item in self.sink.taken]
        while items and not items[-1]["last"]:
            items.pop()
        return packets(items)

    def count(self, name):
        return int(self.signal(f"stat_{name}").value)


async def pair(dut, classic=0, **link):
    a, b = End(dut, "a"), End(dut, "b")
    for end in (a, b):
        end.signal("open").value = 0
        end.signal("s_mac_tuser").value = 0
    ways = Link(dut, "a", "b", seed=1, **link), Link(dut, "b", "a", seed=2, **link)
    await start(dut)
    b.open(0, classic, 0x0A0B0C0D)
    a.open(1, classic, 0x01020304)
    await until(dut, lambda: a.signal("up").value and b.signal("up").value, "no session")
    assert a.signal("classic").value == b.signal("classic").value == classic
    assert a.signal("agreed").value == b.signal("agreed").value == RDMA, "what both offer"
    assert int(a.signal("body_bytes").value) >= FULL
    return a, b, ways


async def until(dut, done, what, clocks=60_000):
    for _ in range(clocks):
        if done():
            return
        await RisingEdge(dut.clk)
    raise AssertionError(what)


def made(pick, count):
    return [pick.randbytes(4 * pick.choice([2, 3, 17, pick.randrange(2, 351), FULL // 4])) for _ in range(count)]


async def exchange(dut, a, b, count, clocks=60_000):
    pick = random.Random(7)
    wanted = [made(pick, count), made(pick, count)]
    before = len(a.bodies()), len(b.bodies())
    for body in wanted[0]:
        a.send(body)
    for body in wanted[1]:
        b.send(body)
    beats_of = [sum(-(-8 * len(body) // a.width) for body in side) for side in wanted]
    start_at = len(b.sink.taken), len(a.sink.taken)
    await until(
        dut, lambda: len(b.sink.taken) - start_at[0] >= beats_of[0] and len(a.sink.taken) - start_at[1] >= beats_of[1], "not all came", clocks)
    assert b.bodies()[before[1] :] == wanted[0] and a.bodies()[before[0] :] == wanted[1]


@cocotb.test()
@cocotb.parametrize(classic=[0, 1], lose=[0, 5])
async def bodies_come_once_and_in_order(dut, classic, lose):
    a, b, ways = await pair(dut, classic, lose=lose)
    await exchange(dut, a, b, 40)
    for end in (a, b):
        assert [end.count(name) for name in ("violations", "check", "refused")] == [0, 0, 0]
        # A wire of 256 bit brings short frames faster than they are looked at.
        assert end.count("full") == 0 or a.width > 128
        assert end.count("sessions") == 1
    assert (sum(way.lost for way in ways) > 0) == (lose > 0)
    again = a.count("again") + b.count("again")
    # Go-Back-N sends again what only came late, by timers as short as these.
    assert again > 0 if lose else classic or again == 0


@cocotb.test()
async def a_damaged_frame_is_as_good_as_lost(dut):
    a, b, ways = await pair(dut, damage=10)
    await exchange(dut, a, b, 40)
    assert sum(end.count("check") + end.count("refused") for end in (a, b)) > 0 < sum(way.damaged for way in ways)
    assert a.count("violations") + b.count("violations") == 0


@cocotb.test()
async def a_user_that_takes_slowly_loses_nothing(dut):
    a, b, _ = await pair(dut)
    b.sink.pause = 80
    await exchange(dut, a, b, 30)
    assert [b.count(name) for name in ("violations", "full")] == [0, 0]


@cocotb.test()
async def full_frames_fill_the_wire(dut):
    a, b, _ = await pair(dut)
    count = 150
    bodies = [random.Random(turn).randbytes(FULL) for turn in range(count)]
    for body in bodies:
        a.send(body)
    await until(dut, lambda: len(b.sink.taken) == count * -(-8 * FULL // a.width), "not all came", 400_000)
    assert b.bodies() == bodies
    ends = [clock for clock, item in b.sink.taken if item["last"]]
    # The window has opened by half of them. On the wire: preamble, header, frame, check, FCS, gap.
    clocks = (ends[-1] - ends[count // 2]) / (count - 1 - count // 2)
    slot = 8 * (8 + 14 + 48 + FULL + 4 + 4 + 12) / a.width
    dut._log.info("%.1f clocks a frame, %.1f on the wire", clocks, slot)
    # A frame is looked at, and then its body goes: below the wire's rate from 128 bit on, and with 512 bit the wire brings more than there is room for.
    if a.width == 64:
        assert clocks <= slot + 2 and b.count("full") == 0
    elif a.width < 512:
        assert clocks <= -(-8 * FULL // a.width) + 12


@cocotb.test()
async def a_session_that_is_closed_ends_and_the_next_begins(dut):
    a, b, _ = await pair(dut)
    await exchange(dut, a, b, 5)
    a.signal("open").value = 0
    await until(dut, lambda: not a.signal("up").value and not b.signal("up").value, "still up")
    a.signal("fresh").value, b.signal("fresh").value = 0x21222324, 0x31323334
    for _ in range(20):
        await RisingEdge(dut.clk)
    a.signal("open").value = 1
    await until(dut, lambda: a.signal("up").value and b.signal("up").value, "no second session", 800_000)
    await exchange(dut, a, b, 5)
    assert a.count("sessions") == b.count("sessions") == 2

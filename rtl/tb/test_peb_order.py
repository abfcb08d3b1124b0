"""es_peb_order: TLPs leave whole, in an order that PCI Express allows, in that of their coming while there is room, and none waits for what it may pass."""

import random

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from axis import Source, start
from wire import beats

POSTED, NON_POSTED, COMPLETION = 0, 1, 2


class Taker:
    """Takes TLPs as a Link with credits would: room for a class comes and goes, and what has begun is taken whole. Answers fences."""

    def __init__(self, dut, pause=0, room=None, seed=4):
        self.dut, self.pause, self.room = dut, pause, room
        self.random, self.left, self.now, self.answers = random.Random(seed), [], b"", []
        self.clock, self.answer_after = 0, 20
        self.dut.m_room.value = 0
        self.dut.done_valid.value = 0
        self.dut.halt.value = 0
        cocotb.start_soon(self.run())

    async def run(self):
        dut, width = self.dut, len(self.dut.m_axis_tdata) // 8
        while True:
            await FallingEdge(dut.clk)
            self.clock += 1
            dut.m_axis_tready.value = int(self.random.randrange(100) >= self.pause)
            if self.room is None:
                if self.clock % 16 == 0:
                    dut.m_room.value = self.random.randrange(8) | self.random.randrange(8)
            else:
                dut.m_room.value = self.room
            due = [answer for answer in self.answers if answer[0] <= self.clock]
            dut.done_valid.value = int(bool(due))
            if due:
                dut.done.value = due[0][1]
                self.answers.remove(due[0])
            await RisingEdge(dut.clk)
            if dut.rst.value or not (dut.m_axis_tvalid.value and dut.m_axis_tready.value):
                continue
            count = int(dut.m_axis_tkeep.value).bit_length()
            self.now += int(dut.m_axis_tdata.value).to_bytes(width, "little")[:count]
            if dut.m_axis_tlast.value:
                one = (int(dut.m_axis_tuser.value), self.now)
                self.left.append((self.clock, *one))
                self.now = b""
                if one[1][0] & 1 and self.answer_after is not None:
                    self.answers.append((self.clock + self.answer_after, int.from_bytes(one[1][1:3], "big")))


def tlp(place, kind, pick, fence=False, relaxed=False):
    """A packet that says what it is: byte 0 flags, bytes 1 and 2 its place."""
    size = pick.choice([12, 12, 16, 20]) if kind == NON_POSTED else pick.choice([12, 16, 20, 40, 64])
    return bytes([int(fence) | 2 * int(relaxed)]) + place.to_bytes(2, "big") + pick.randbytes(size - 3)


async def begin(dut, plan, idle=0, **taker):
    """`plan`: (kind, fence, relaxed) of each TLP in order."""
    pick = random.Random(41)
    heads, stream = Source(dut, "s_hdr_", idle), Source(dut, "s_axis_t", idle, seed=2)
    dut.clear.value = 1
    link = Taker(dut, **taker)
    await start(dut)
    dut.clear.value = 0
    made = []
    for place, (kind, fence, relaxed) in enumerate(plan):
        packet = tlp(place, kind, pick, fence, relaxed)
        made.append((kind, packet))
        heads.queue.append({"class": kind, "relaxed": int(relaxed), "fence": int(fence), "transaction": place})
        stream.queue.extend(beats(packet, len(dut.s_axis_tdata)))
    return made, link


async def until(dut, link, count, clocks=60_000):
    for _ in range(clocks):
        if len(link.left) >= count:
            break
        await RisingEdge(dut.clk)
    assert len(link.left) >= count, f"{len(link.left)} of {count}"
    return [int.from_bytes(packet[1:3], "big") for _, _, packet in link.left]


def allowed(plan, places):
    """Whether TLPs that left in this order have passed only what they may; fences by themselves apart."""
    for at, place in enumerate(places):
        kind, _, relaxed = plan[place]
        for passed in set(range(place)) - set(places[:at]):
            other, fence, _ = plan[passed]
            assert kind != other, f"{place} passed {passed} of its class"
            assert other != POSTED or (kind == COMPLETION and relaxed), f"{place} passed the Posted Request {passed}"
            assert not fence or kind == COMPLETION, f"{place} passed the fence {passed}"


def mixed(pick, count, fences=0.1):
    kinds = [pick.choice([POSTED, POSTED, NON_POSTED, COMPLETION]) for _ in range(count)]
    return [(kind, kind == NON_POSTED and pick.random() < fences, kind == COMPLETION and pick.random() < 0.3) for kind in kinds]


@cocotb.test()
@cocotb.parametrize(idle=[0, 40], pause=[0, 60])
async def whatever_room_there_is_the_order_is_kept(dut, idle, pause):
    plan = mixed(random.Random(idle + pause), 300)
    made, link = await begin(dut, plan, idle, pause=pause)
    places = await until(dut, link, len(plan))
    assert sorted(places) == list(range(len(plan)))
    assert all((kind, packet) == made[place] for place, (_, kind, packet) in zip(places, link.left))
    allowed(plan, places)
    assert int(dut.stat_passed.value) > 0 and int(dut.stat_timeouts.value) == 0


@cocotb.test()
async def with_room_nothing_passes_a_posted_request_nor_is_passed_by_one(dut):
    plan = mixed(random.Random(7), 200, fences=0)
    _, link = await begin(dut, plan, room=7)
    places = await until(dut, link, len(plan))
    for kind in (NON_POSTED, COMPLETION):
        chosen = [place for place in places if plan[place][0] in (POSTED, kind)]
        assert chosen == sorted(chosen)
    assert int(dut.stat_passed.value) == 0


@cocotb.test()
@cocotb.parametrize(stuck=[NON_POSTED, COMPLETION])
async def what_has_no_room_does_not_hold_up_the_rest(dut, stuck):
    plan = [(stuck, False, False)] * 8 + [(POSTED, False, False), (3 - stuck, False, False)] * 30
    _, link = await begin(dut, plan, room=7 & ~(1 << stuck))
    places = await until(dut, link, 60)
    assert min(places) == 8
    link.room = 7
    await until(dut, link, len(plan))


@cocotb.test()
async def a_completion_passes_a_stuck_posted_request_only_if_its_order_is_relaxed(dut):
    plan = [(POSTED, False, False), (COMPLETION, False, True), (COMPLETION, False, False), (COMPLETION, False, True), (NON_POSTED, False, False)]
    _, link = await begin(dut, plan, room=6)
    for _ in range(200):
        await RisingEdge(dut.clk)
    assert [packet[2] for _, _, packet in link.left] == [1]
    link.room = 7
    places = await until(dut, link, 5)
    assert places[:2] == [1, 0] and places.index(2) < places.index(3)


@cocotb.test()
async def requests_behind_a_fence_wait_for_its_answer(dut):
    plan = [(POSTED, False, False), (NON_POSTED, True, False), (POSTED, False, False), (NON_POSTED, False, False), (NON_POSTED, True, False), (POSTED, False, False)]
    _, link = await begin(dut, plan, room=7)
    link.answer_after = 150
    places = await until(dut, link, 6)
    assert places == list(range(6))
    clocks = [clock for clock, _, _ in link.left]
    assert clocks[2] - clocks[1] > 150 and clocks[5] - clocks[4] > 150
    assert int(dut.stat_timeouts.value) == 0


@cocotb.test()
async def a_fence_that_is_never_answered_ends(dut):
    plan = [(NON_POSTED, True, False), (POSTED, False, False)]
    _, link = await begin(dut, plan, room=7)
    link.answer_after = None
    await until(dut, link, 2)
    assert link.left[1][0] - link.left[0][0] >= 400
    assert int(dut.stat_timeouts.value) == 1


@cocotb.test()
async def while_it_is_halted_nothing_begins(dut):
    plan = mixed(random.Random(8), 40, fences=0)
    _, link = await begin(dut, plan, room=7)
    await until(dut, link, 10)
    dut.halt.value = 1
    while dut.busy.value:
        await RisingEdge(dut.clk)
    count = len(link.left)
    for _ in range(100):
        await RisingEdge(dut.clk)
    assert len(link.left) <= count + 1
    dut.halt.value = 0
    await until(dut, link, len(plan))

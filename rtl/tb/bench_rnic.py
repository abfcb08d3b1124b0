"""Figures and timing of es_rnic in clocks, beside a memory of exact latency: written to the file that RTL_FIGURES names, as JSON."""

import json
import os

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

import rnic
from axis import Sink, Source, start
from rnic import PEER, Rnic, segment, send_wqe, sge

FIGURES = {}
SOURCE, SINK = 0x40000, 0x40000


class Memory:
    """What Rnic writes to, put into the memory of the bench."""

    def __init__(self, dut, width):
        self.words, self.width = dut.memory, width

    def __setitem__(self, place, data):
        for at in range(0, len(data), self.width):
            self.words[(place.start + at) // self.width].value = int.from_bytes(data[at : at + self.width], "little")


class Exact(Rnic):
    def __init__(self, dut):
        self.dut, self.width = dut, len(dut.m_axis_tdata) // 8
        self.memory = Memory(dut, self.width)
        self.host = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.heads, self.stream = Source(dut, "s_seg_"), Source(dut, "s_axis_t")
        self.posted, self.filled, self.seen = {}, {}, {}
        dut.segment_bytes.value = 1472
        dut.m_seg_ready.value = 1
        dut.m_axis_tready.value = 1
        self.clock, self.out, self.put, self.came, self.doorbells = 0, [], [], [], []
        cocotb.start_soon(self.watch())

    async def watch(self):
        """Clocks at which beats leave for the link, come from it, go to memory; and doorbells."""
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            self.clock += 1
            if dut.m_axis_tvalid.value:
                self.out.append((self.clock, int(dut.m_axis_tlast.value)))
            if dut.w_valid.value:
                self.put.append(self.clock)
            if dut.s_axis_tvalid.value and dut.s_axis_tready.value:
                self.came.append(self.clock)
            if dut.s_axil_awvalid.value and dut.s_axil_awready.value and int(dut.s_axil_awaddr.value) >> 23 == 1:
                self.doorbells.append(self.clock)

    async def rows(self, quiet=40):
        """What happens clock by clock until nothing happens any more: row -> clocks, from the first doorbell or word of the link on."""
        dut, rows, clock, last = self.dut, {}, 0, 0
        send, receive = dut.rnic.sender.translate, dut.rnic.receiver.placement.translate
        words, heads = 0, -(-16 // self.width)
        while clock - last < quiet:
            await RisingEdge(dut.clk)
            door = dut.s_axil_awvalid.value and dut.s_axil_awready.value and int(dut.s_axil_awaddr.value) >> 23 == 1
            comes = dut.s_axis_tvalid.value and dut.s_axis_tready.value
            leaves = dut.m_axis_tvalid.value
            untagged = leaves and not words and not int(dut.m_axis_tdata.value) >> 23 & 1
            if untagged:
                heads = -(-20 // self.width)
            seen = {
                "doorbell, store": door, "WQE asked for": dut.arvalid[1].value, "WQE comes": dut.rvalid[1].value,
                "segment comes": comes, "STag looked up": send.valid.value or receive.valid.value, "it passes": send.checked.value or receive.checked.value,
                "data asked for": dut.arvalid[0].value, "data come": dut.rvalid[0].value and dut.rready[0].value,
                "header leaves": leaves and words < heads, "data leave": leaves and words >= heads,
                "data into memory": dut.w_valid.value and dut.rnic.writer.state.value == 1, "CQE into memory": dut.rnic.writer.state.value == 2,
            }
            if leaves:
                words = 0 if dut.m_axis_tlast.value else words + 1
                heads = -(-16 // self.width) if not words else heads
            if not rows and not door and not comes:
                last = clock
                continue
            for name, happens in seen.items():
                if happens:
                    rows.setdefault(name, []).append(clock)
                    last = clock
            clock += 1
        return rows

    async def idle(self, quiet=60):
        """Until nothing has moved for a while."""
        while True:
            before = len(self.out), len(self.put), len(self.came)
            for _ in range(quiet):
                await RisingEdge(self.dut.clk)
            if before == (len(self.out), len(self.put), len(self.came)) and not self.stream.queue:
                return


async def connected(dut):
    core = Exact(dut)
    await core.start()
    await core.cq(2)
    await core.qp(2, 3, to=rnic.RTS)
    core.region = await core.register(1, SOURCE, 0x40000, rnic.REMOTE_WRITE | rnic.REMOTE_READ | rnic.LOCAL_WRITE)
    core.inject(segment(2, 12, untagged=(1, 4, 1, 2)))
    await core.idle()
    return core


def note(name, value):
    FIGURES[name] = value
    with open(os.environ["RTL_FIGURES"], "w") as out:
        json.dump(FIGURES, out)


async def acknowledge(core, message):
    core.inject(segment(2, 13, untagged=(0, 4, message, 0)))
    await core.idle()


@cocotb.test()
async def latencies(dut):
    core = await connected(dut)
    header = -(-16 // core.width) - (0 if 16 % core.width == 0 else 1)
    for turn, name in enumerate(["write_cold", "write_cached"]):
        core.out.clear()
        core.doorbells.clear()
        # The first look-up of the STag is cold.
        await core.post(2, send_wqe(rnic.WRITE, 1, [sge(SOURCE, core.region, 1024)], (5, 0)))
        await core.idle()
        note(name, core.out[header][0] - core.doorbells[0])
        await acknowledge(core, 2 + turn)
    core.out.clear()
    core.doorbells.clear()
    await core.post(2, send_wqe(rnic.READ, 1, [sge(SINK, core.region, 1024)], (5, 0)))
    await core.idle()
    note("read", core.out[-1][0] - core.doorbells[0])
    # PUSH: a Write with a flag for either side. The Read before it stays unanswered.
    core.out.clear()
    core.doorbells.clear()
    tell = ((core.region, SOURCE, 1), (5, 0, 2))
    await core.post(2, send_wqe(rnic.WRITE, 1, [sge(SOURCE, core.region, 1024)], (5, 0), tell=tell))
    await core.idle()
    note("push", core.out[header][0] - core.doorbells[0])
    assert core.out[-1][1] and sum(last for _, last in core.out) == 2, "data and flag"
    # BOTF and AOTF: to the first word of the header.
    for name, send in (("botf", core.kick(2, send_wqe(rnic.WRITE, 1, (), (5, 0), inline=bytes(300)))), ("aotf", core.store(2, 0, 7))):
        await core.prepare(2, 0, send_wqe(rnic.WRITE, 1, (), (5, 0), inline=bytes(8)))
        await core.idle()
        core.out.clear()
        core.doorbells.clear()
        await send
        await core.idle()
        note(name, core.out[0][0] - core.doorbells[-1])
    core.put.clear()
    core.came.clear()
    core.inject(segment(2, 0, bytes(1024), tagged=(core.region, SINK)))
    await core.idle()
    note("receive", core.put[0] - core.came[0])


@cocotb.test()
async def diagrams(dut):
    """A Write of 64 bytes and its Acknowledge, a Read of as many and its Response."""
    core = await connected(dut)
    parts = {}

    async def draw(name, cause):
        watcher = cocotb.start_soon(core.rows())
        await cause()
        parts[name] = await watcher

    async def come(packet):
        core.inject(packet)

    await draw("Write", lambda: core.post(2, send_wqe(rnic.WRITE, 1, [sge(SOURCE, core.region, 64)], (5, 0))))
    await draw("its Acknowledge", lambda: come(segment(2, 13, untagged=(0, 4, 2, 0))))
    await draw("Read", lambda: core.post(2, send_wqe(rnic.READ, 2, [sge(SINK, core.region, 64)], (5, 0))))
    await come(segment(2, 13, untagged=(0, 4, 3, 0)))
    await core.idle()
    await draw("its Response", lambda: come(segment(2, 2, bytes(64), tagged=(0xF << 28, 0))))
    await core.prepare(2, 0, send_wqe(rnic.WRITE, 3, (), (5, 0), inline=bytes(8)))
    await core.idle()
    await draw("AOTF", lambda: core.store(2, 0, 7))
    note("diagrams", parts)


@cocotb.test()
async def send_throughput(dut):
    core = await connected(dut)
    message, curve = 1, {}
    for size, count in [(64, 15), (128, 15), (256, 15), (512, 15), (1024, 15), (2048, 12), (4096, 8), (16384, 4), (65536, 3)]:
        core.out.clear()
        await core.post(2, *(send_wqe(rnic.WRITE, turn, [sge(SOURCE, core.region, size)], (5, 0), flags=0) for turn in range(count)))
        await core.idle()
        clocks = core.out[-1][0] - core.out[0][0] + 1
        curve[size] = 100 * size * count / core.width / clocks
        message += count
        await acknowledge(core, message)
    note("send", curve[65536])
    note("send_curve", curve)


# Preamble, Ethernet header and FCS around a segment.
ETHERNET = 8 + 14 + 4


@cocotb.test()
async def send_throughput_in_ethernet_frames(dut):
    """The link takes a segment as the payload of a frame that begins with a beat: for the clocks of what is around it, it takes nothing."""
    core = await connected(dut)
    gap = taken = 0
    ends = []

    async def frame():
        nonlocal gap, taken
        while True:
            await FallingEdge(dut.clk)
            dut.m_axis_tready.value = int(gap == 0)
            await RisingEdge(dut.clk)
            if gap:
                gap -= 1
            elif dut.m_axis_tvalid.value:
                taken += int(dut.m_axis_tkeep.value).bit_count()
                if dut.m_axis_tlast.value:
                    gap = -(-(taken + ETHERNET) // core.width) - -(-taken // core.width)
                    ends.append((core.clock, taken, gap))
                    taken = 0

    cocotb.start_soon(frame())
    size, count = 65536, 3
    await core.post(2, *(send_wqe(rnic.WRITE, turn, [sge(SOURCE, core.region, size)], (5, 0), flags=0) for turn in range(count)))
    await core.idle(200)
    # From the end of the first frame to that of the last.
    clocks = ends[-1][0] + ends[-1][2] - ends[0][0] - ends[0][2]
    note("send_ethernet", 100 * sum(bytes - 16 for _, bytes, _ in ends[1:]) / core.width / clocks)


@cocotb.test()
async def receive_throughput(dut):
    core = await connected(dut)
    curve = {}
    for size, count in [(64, 15), (128, 15), (256, 15), (512, 15), (1024, 15), (1472, 10), (2048, 12), (4096, 8), (16384, 4), (65536, 2)]:
        core.put.clear()
        core.came.clear()
        for _ in range(count):
            for at in range(0, size, 1472):
                part = min(1472, size - at)
                core.inject(segment(2, 0, bytes(part), at + part == size, tagged=(core.region, SINK + at)))
        await core.idle()
        clocks = max(core.came[-1], core.put[-1]) - core.came[0] + 1
        curve[size] = 100 * size * count / core.width / clocks
    note("receive_throughput", curve[65536])
    note("receive_curve", curve)

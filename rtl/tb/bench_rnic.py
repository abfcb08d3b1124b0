"""Figures of es_rnic in clocks, beside a memory of exact latency: written to the file that RTL_FIGURES names, as JSON."""

import json
import os

import cocotb
from cocotb.triggers import RisingEdge
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
    core.put.clear()
    core.came.clear()
    core.inject(segment(2, 0, bytes(1024), tagged=(core.region, SINK)))
    await core.idle()
    note("receive", core.put[0] - core.came[0])


@cocotb.test()
async def send_throughput(dut):
    core = await connected(dut)
    message, curve = 1, {}
    for size, count in [(256, 15), (512, 15), (1024, 15), (2048, 12), (4096, 8), (16384, 4), (65536, 3)]:
        core.out.clear()
        await core.post(2, *(send_wqe(rnic.WRITE, turn, [sge(SOURCE, core.region, size)], (5, 0), flags=0) for turn in range(count)))
        await core.idle()
        clocks = core.out[-1][0] - core.out[0][0] + 1
        curve[size] = 100 * size * count / core.width / clocks
        message += count
        await acknowledge(core, message)
    note("send", curve[65536])
    note("send_curve", curve)


@cocotb.test()
async def receive_throughput(dut):
    core = await connected(dut)
    curve = {}
    for size, count in [(256, 15), (512, 15), (1024, 15), (1472, 10), (2048, 12), (4096, 8), (16384, 4), (65536, 2)]:
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

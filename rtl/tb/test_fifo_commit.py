"""es_fifo_commit: packets that are committed come out whole, those that are dropped do not, at full rate."""

import random

import cocotb
from cocotb.triggers import FallingEdge

from axis import Sink, start


@cocotb.test()
@cocotb.parametrize(pause=[0, 30, 90])
async def what_is_committed_comes_out_and_nothing_else(dut, pause):
    sink = Sink(dut, "m_", ["data"], pause)
    dut.s_valid.value, dut.s_commit.value, dut.s_drop.value = 0, 0, 0
    await start(dut)
    pick, expected = random.Random(4), []
    for _ in range(120):
        packet = [pick.getrandbits(8) for _ in range(pick.randrange(1, 6))]
        good, full = pick.randrange(3) != 0, False
        for at, word in enumerate(packet):
            await FallingEdge(dut.clk)
            last = at == len(packet) - 1
            dut.s_valid.value, dut.s_data.value = 1, word
            dut.s_commit.value, dut.s_drop.value = 0, 0
            await cocotb.triggers.Timer(1, unit="ns")
            full = full or bool(dut.s_full.value)
            dut.s_commit.value, dut.s_drop.value = int(last and good and not full), int(last and not (good and not full))
        if good and not full:
            expected.extend({"data": word} for word in packet)
        if pick.randrange(2):
            await FallingEdge(dut.clk)
            dut.s_valid.value, dut.s_commit.value, dut.s_drop.value = 0, 0, 0
    await FallingEdge(dut.clk)
    dut.s_valid.value, dut.s_commit.value, dut.s_drop.value = 0, 0, 0
    assert len(expected) > 20
    assert await sink.wait(len(expected)) == expected


@cocotb.test()
async def a_word_comes_three_clocks_after_its_commit(dut):
    sink = Sink(dut, "m_", ["data"])
    dut.s_valid.value, dut.s_commit.value, dut.s_drop.value = 0, 0, 0
    await start(dut)
    await FallingEdge(dut.clk)
    dut.s_valid.value, dut.s_commit.value, dut.s_data.value = 1, 1, 7
    at = sink.clock
    await FallingEdge(dut.clk)
    dut.s_valid.value, dut.s_commit.value = 0, 0
    await sink.wait(1)
    assert sink.taken[0][0] - at == 4, "a clock to take it, three through the FIFO"

"""es_slots: what was written into a slot is read from it, as often as asked, at a beat a clock."""

import random

import cocotb
from cocotb.triggers import FallingEdge

from axis import Sink, start
from wire import beats, packets


async def write(dut, slot, data):
    for beat in beats(data, len(dut.s_axis_tdata)):
        await FallingEdge(dut.clk)
        dut.s_slot.value, dut.s_axis_tvalid.value = slot, 1
        for name, value in beat.items():
            getattr(dut, f"s_axis_t{name}").value = value
    await FallingEdge(dut.clk)
    dut.s_axis_tvalid.value = 0


async def read(dut, slot):
    await FallingEdge(dut.clk)
    while not dut.idle.value:
        await FallingEdge(dut.clk)
    dut.read_slot.value, dut.read.value = slot, 1
    await FallingEdge(dut.clk)
    dut.read.value = 0


async def begin(dut, pause):
    sink = Sink(dut, "m_axis_t", ["data", "keep", "last"], pause)
    for name in ("s_restart", "s_axis_tvalid", "read"):
        getattr(dut, name).value = 0
    await start(dut)
    return sink


@cocotb.test()
@cocotb.parametrize(pause=[0, 50, 90])
async def slots_are_read_as_they_were_written(dut, pause):
    sink = await begin(dut, pause)
    pick, expected = random.Random(2), []
    count = 1 << len(dut.s_slot)
    kept = [pick.randbytes(pick.randrange(1, 65)) for _ in range(count)]
    for slot, data in enumerate(kept):
        await write(dut, slot, data)
    for _ in range(60):
        slot = pick.randrange(count)
        if pick.randrange(4) == 0:
            while not dut.idle.value:
                await FallingEdge(dut.clk)
            kept[slot] = pick.randbytes(pick.randrange(1, 65))
            await write(dut, slot, kept[slot])
        await read(dut, slot)
        expected.append(kept[slot])
    await sink.wait(sum(len(beats(data, 64)) for data in expected))
    assert packets(item for _, item in sink.taken) == expected


@cocotb.test()
async def a_packet_that_is_given_up_leaves_nothing_in_the_next(dut):
    sink = await begin(dut, 0)
    await FallingEdge(dut.clk)
    dut.s_slot.value, dut.s_axis_tvalid.value = 1, 1
    dut.s_axis_tdata.value, dut.s_axis_tkeep.value, dut.s_axis_tlast.value = 5, 255, 0
    await FallingEdge(dut.clk)
    dut.s_axis_tvalid.value, dut.s_restart.value = 0, 1
    await FallingEdge(dut.clk)
    dut.s_restart.value = 0
    await write(dut, 1, bytes(range(20)))
    at = sink.clock
    await read(dut, 1)
    await sink.wait(3)
    assert packets(item for _, item in sink.taken) == [bytes(range(20))]
    assert sink.taken[2][0] - sink.taken[0][0] == 2 and sink.taken[0][0] - at <= 6

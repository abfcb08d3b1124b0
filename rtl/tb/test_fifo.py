"""es_fifo and es_fifo_block: what goes in comes out, in order, at full rate; no word is lost when full."""

import random

import cocotb
from cocotb.triggers import RisingEdge

from axis import GRID, Sink, Source, start


@cocotb.test()
@cocotb.parametrize(load=GRID)
async def every_word_passes_once_in_order(dut, load):
    source, sink = Source(dut, "s_", load[0]), Sink(dut, "m_", ["data"], load[1])
    await start(dut)
    pick = random.Random(3)
    sent = [{"data": pick.getrandbits(len(dut.s_data))} for _ in range(300)]
    source.queue.extend(sent)
    assert await sink.wait(len(sent)) == sent


@cocotb.test()
async def a_stream_without_pauses_takes_a_clock_a_word(dut):
    source, sink = Source(dut, "s_"), Sink(dut, "m_", ["data"])
    await start(dut)
    source.queue.extend({"data": word} for word in range(100))
    await sink.wait(100)
    assert sink.taken[-1][0] - sink.taken[0][0] == 99


@cocotb.test()
async def what_is_not_taken_is_kept(dut):
    source, sink = Source(dut, "s_"), Sink(dut, "m_", ["data"], pause=100)
    await start(dut)
    sent = [{"data": word} for word in range(200)]
    source.queue.extend(sent)
    for _ in range(150):
        await RisingEdge(dut.clk)
    assert not sink.taken and 0 < len(source.queue) < 200, "a full FIFO takes no more"
    sink.pause = 0
    assert await sink.wait(200) == sent

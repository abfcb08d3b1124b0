"""es_axis_skid: what goes in comes out, in order, at full rate."""

import random

import cocotb

from axis import GRID, Sink, Source, start

NAMES = ["tdata", "tkeep", "tuser", "tlast"]


def beats(dut, count, seed):
    pick = random.Random(seed)
    width = len(dut.s_axis_tdata)
    return [
        {"tdata": pick.getrandbits(width), "tkeep": pick.getrandbits(width // 8), "tuser": pick.getrandbits(1), "tlast": pick.getrandbits(1)}
        for _ in range(count)
    ]


@cocotb.test()
@cocotb.parametrize(load=GRID)
async def every_beat_passes_once_in_order(dut, load):
    source, sink = Source(dut, "s_axis_t", load[0]), Sink(dut, "m_axis_t", [name[1:] for name in NAMES], load[1])
    await start(dut)
    sent = [{name[1:]: value for name, value in beat.items()} for beat in beats(dut, 300, 7)]
    source.queue.extend(sent)
    assert await sink.wait(len(sent)) == sent


@cocotb.test()
async def a_stream_without_pauses_takes_a_clock_a_beat(dut):
    source, sink = Source(dut, "s_axis_t"), Sink(dut, "m_axis_t", [name[1:] for name in NAMES])
    await start(dut)
    source.queue.extend({name[1:]: value for name, value in beat.items()} for beat in beats(dut, 100, 8))
    await sink.wait(100)
    assert sink.taken[-1][0] - sink.taken[0][0] == 99

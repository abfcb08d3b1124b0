"""es_check_append: every frame gets the check that RFC 3720 says, whatever its length."""

import random

import cocotb

from axis import GRID, Sink, Source, start
from wire import beats, check, packets


async def pass_through(dut, frames, load=(0, 0)):
    width = len(dut.s_axis_tdata)
    source, sink = Source(dut, "s_axis_t", load[0]), Sink(dut, "m_axis_t", ["data", "keep", "last"], load[1])
    await start(dut)
    for frame in frames:
        source.queue.extend(beats(frame, width))
    expected = [frame + check(frame) for frame in frames]
    await sink.wait(sum(len(beats(frame, width)) for frame in expected))
    assert packets(item for _, item in sink.taken) == expected
    return sink


@cocotb.test()
async def the_check_of_the_digits_is_that_of_the_rfc(dut):
    await pass_through(dut, [b"123456789"])
    assert check(b"123456789") == bytes.fromhex("e3069283")


@cocotb.test()
@cocotb.parametrize(load=GRID)
async def frames_of_every_length_get_their_check(dut, load):
    pick = random.Random(5)
    width = len(dut.s_axis_tdata) // 8
    lengths = list(range(1, 2 * width + 2)) + [pick.randrange(1, 300) for _ in range(20)]
    await pass_through(dut, [pick.randbytes(length) for length in lengths], load)


@cocotb.test()
async def a_frame_takes_a_clock_a_beat_and_one_more_if_its_check_does_not_fit(dut):
    width = len(dut.s_axis_tdata) // 8
    sink = await pass_through(dut, [bytes(4 * width - 4)] * 5 + [bytes(4 * width)] * 5)
    assert sink.taken[-1][0] - sink.taken[0][0] == 5 * 4 + 5 * 5 - 1

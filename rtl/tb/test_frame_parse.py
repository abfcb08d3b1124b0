"""es_frame_parse: the bytes of the vectors become header, SACK block and body."""

import random

import cocotb

from axis import GRID, Sink, Source, start
from wire import beats, canonical, packets, parts


async def parse(dut, frames, load=(0, 0)):
    width = len(dut.s_axis_tdata)
    source = Source(dut, "s_axis_t", load[0])
    headers, bodies = Sink(dut, "m_hdr_", ["header", "sack"], load[1], 12), Sink(dut, "m_axis_t", ["data", "keep", "last"], load[1])
    await start(dut)
    expected = [parts(frame) for frame in frames]
    for frame in frames:
        source.queue.extend(beats(frame, width))
    heads = await headers.wait(len(frames))
    for (header, sack, _), got in zip(expected, heads):
        assert got["header"] == header
        assert not header >> 368 & 1 or got["sack"] == sack
    await bodies.wait(sum(len(beats(body, width)) for _, _, body in expected))
    assert packets(item for _, item in bodies.taken) == [body for _, _, body in expected if body]
    return bodies


@cocotb.test()
@cocotb.parametrize(load=GRID)
async def the_frames_of_the_vectors_are_parted(dut, load):
    frames = [frame[:-4] for frame in canonical()]
    random.Random(4).shuffle(frames)
    await parse(dut, frames, load)


@cocotb.test()
async def bodies_of_every_length_are_parted(dut):
    frames = []
    for length in range(1, 140):
        frame = bytearray(random.Random(length).randbytes(48 + 32 * (length & 1) + length))
        frame[1] = frame[1] & 0xFE | length & 1
        frame[2:4] = length.to_bytes(2, "big")
        frames.append(bytes(frame))
    await parse(dut, frames)


@cocotb.test()
async def a_frame_takes_a_clock_a_beat(dut):
    width = len(dut.s_axis_tdata) // 8
    # Whole beats of body come out, so none is left to a clock of its own.
    length = 10 * width
    frame = bytearray(48 + length)
    frame[2:4] = length.to_bytes(2, "big")
    bodies = await parse(dut, [bytes(frame)] * 6)
    assert bodies.taken[-1][0] - bodies.taken[0][0] <= 5 * -(-len(frame) // width) + -(-length // width)

"""es_frame_build: header, SACK block and body become the bytes of the vectors, up to the check."""

import random

import cocotb

from axis import GRID, Sink, Source, start
from wire import beats, canonical, packets, parts


async def build(dut, frames, load=(0, 0)):
    width = len(dut.s_axis_tdata)
    headers, bodies = Source(dut, "s_hdr_", load[0], 11), Source(dut, "s_axis_t", load[0])
    sink = Sink(dut, "m_axis_t", ["data", "keep", "last"], load[1])
    await start(dut)
    for frame in frames:
        header, sack, body = parts(frame)
        # Without its flag a SACK block means nothing, whatever it is.
        headers.queue.append({"header": header, "sack": sack if frame[1] & 1 else (1 << 256) - 1})
        bodies.queue.extend(beats(body, width))
    await sink.wait(sum(len(beats(frame, width)) for frame in frames))
    assert packets(item for _, item in sink.taken) == frames
    return sink


@cocotb.test()
@cocotb.parametrize(load=GRID)
async def the_frames_of_the_vectors_are_built(dut, load):
    frames = [frame[:-4] for frame in canonical()]
    random.Random(3).shuffle(frames)
    await build(dut, frames, load)


@cocotb.test()
async def bodies_of_every_length_follow_their_header(dut):
    frames = []
    for length in range(1, 140):
        frame = bytearray(random.Random(length).randbytes(48 + 32 * (length & 1) + length))
        frame[1] = frame[1] & 0xFE | length & 1
        frame[2:4] = length.to_bytes(2, "big")
        frames.append(bytes(frame))
    await build(dut, frames)


@cocotb.test()
async def no_clock_is_lost_between_frames(dut):
    width = len(dut.s_axis_tdata) // 8
    frame = bytearray(48 + 2 * width * 5)
    frame[2:4] = (10 * width).to_bytes(2, "big")
    sink = await build(dut, [bytes(frame)] * 8)
    assert sink.taken[-1][0] - sink.taken[0][0] == 8 * -(-len(frame) // width) - 1

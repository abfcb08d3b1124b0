"""es_check_verify: good frames come out without check and padding, nothing of a bad one does, and each is counted."""

import random

import cocotb
from cocotb.triggers import FallingEdge

from axis import Sink, start
from wire import beats, check, packets, parts, vectors


class Mac:
    """Hands beats over without waiting, as a MAC does."""

    def __init__(self, dut, pause=0):
        self.dut, self.pause, self.random = dut, pause, random.Random(6)
        dut.s_axis_tvalid.value = 0

    async def give(self, frame, bad=0, gap=0):
        width = len(self.dut.s_axis_tdata)
        for beat in beats(frame, width, user=bad):
            while True:
                await FallingEdge(self.dut.clk)
                if self.random.randrange(100) >= self.pause:
                    break
                self.dut.s_axis_tvalid.value = 0
            for name, value in beat.items():
                getattr(self.dut, f"s_axis_t{name}").value = value
            self.dut.s_axis_tvalid.value = 1
        for _ in range(gap + 1):
            await FallingEdge(self.dut.clk)
            self.dut.s_axis_tvalid.value = 0


def is_taken(vector):
    """HEADER_CHECK is never agreed to, so a frame that has it is refused."""
    return "error" not in vector and not vector["fields"]["header_check"]


async def begin(dut, pause, idle):
    sink = Sink(dut, "m_axis_t", ["data", "keep", "last"], pause)
    mac = Mac(dut, idle)
    await start(dut)
    return mac, sink


async def settle(dut, sink, expected):
    width = len(dut.s_axis_tdata)
    await sink.wait(sum(len(beats(frame, width)) for frame in expected))
    for _ in range(60):
        await FallingEdge(dut.clk)
    assert packets(item for _, item in sink.taken) == expected


@cocotb.test()
@cocotb.parametrize(load=[(0, 0), (50, 0), (0, 50), (50, 90)])
async def of_the_vectors_the_good_come_out_and_the_others_are_counted(dut, load):
    mac, sink = await begin(dut, load[1], load[0])
    chosen = [vector for vector in vectors() if vector["bytes"]]
    random.Random(9).shuffle(chosen)
    expected = []
    for vector in chosen:
        frame = bytes.fromhex(vector["bytes"])
        # Room for what is taken slowly.
        await mac.give(frame, gap=0 if load[1] < 90 else 200)
        if is_taken(vector):
            expected.append(frame[: 48 + 32 * (frame[1] & 1) + int.from_bytes(frame[2:4], "big")])
    await settle(dut, sink, expected)
    checks = sum(vector.get("error") == "check" and not int(vector["bytes"][2:4], 16) & 0x80 for vector in chosen)
    assert int(dut.stat_good.value) == len(expected)
    assert int(dut.stat_refused.value) + int(dut.stat_check.value) == len(chosen) - len(expected)
    assert int(dut.stat_check.value) <= checks and int(dut.stat_check.value) > 5
    assert int(dut.stat_full.value) == 0


@cocotb.test()
async def a_damaged_bit_anywhere_is_seen(dut):
    mac, sink = await begin(dut, 0, 0)
    good = bytes.fromhex(next(vector["bytes"] for vector in vectors() if vector["name"].startswith("every field")))
    pick = random.Random(2)
    for _ in range(150):
        frame = bytearray(good)
        at = pick.randrange(8 * len(good))
        frame[at // 8] ^= 1 << at % 8
        await mac.give(bytes(frame))
    await mac.give(good)
    await settle(dut, sink, [good[:-4]])
    assert int(dut.stat_good.value) == 1 and int(dut.stat_refused.value) + int(dut.stat_check.value) == 150


@cocotb.test()
async def frames_of_every_length_pass_with_padding_or_without_unless_the_mac_found_them_bad(dut):
    mac, sink = await begin(dut, 0, 0)
    pick, expected = random.Random(8), []
    for length in range(140):
        frame = bytearray(pick.randbytes(48 + 32 * (length & 1) + length))
        frame[0:4] = bytes([0x13, length & 1]) + length.to_bytes(2, "big")
        frame = bytes(frame)
        bad = length % 7 == 3
        await mac.give(frame + check(frame) + pick.randbytes(pick.choice([0, 0, 1, 9])), bad)
        if not bad:
            expected.append(frame)
    await settle(dut, sink, expected)
    assert int(dut.stat_refused.value) == 20


@cocotb.test()
async def frames_without_room_are_dropped_whole(dut):
    mac, sink = await begin(dut, 100, 0)
    frame = bytes.fromhex(vectors()[0]["bytes"])
    # More beats than the FIFO has.
    count = 80 * len(dut.s_axis_tdata) // 64
    for _ in range(count):
        await mac.give(frame)
    for _ in range(20):
        await FallingEdge(dut.clk)
    kept, dropped = int(dut.stat_good.value), int(dut.stat_full.value)
    assert kept + dropped == count and kept and dropped
    sink.pause = 0
    await settle(dut, sink, [frame[:-4]] * kept)
    await mac.give(frame)
    await settle(dut, sink, [frame[:-4]] * (kept + 1))

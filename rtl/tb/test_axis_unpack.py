"""es_axis_unpack: pieces of packets come out where their commands say."""

import random

import cocotb

from axis import GRID, Sink, Source, start


def beats(packet, width):
    for at in range(0, len(packet), width):
        part = packet[at : at + width]
        yield {"tdata": int.from_bytes(part, "little"), "bytes": len(part), "tlast": int(at + width >= len(packet))}


class Packets(Source):
    """The stream of es_axis_unpack: `bytes` in place of tkeep."""

    def __init__(self, dut, idle):
        super().__init__(dut, "s_axis_t", idle)
        self.prefix = "s_axis_"


async def bench(dut, load, made):
    """`made`: packets, each with its commands (offset, bytes, drop)."""
    width = len(dut.m_data) // 8
    stream, commands = Packets(dut, load[0]), Source(dut, "c_", load[0] // 2, seed=5)
    sink = Sink(dut, "m_", ["data", "strb", "last"], load[1])
    await start(dut)
    wanted = []
    for packet, plan in made:
        stream.queue.extend(beats(packet, width))
        place = 0
        for at, (offset, count, drop) in enumerate(plan):
            commands.queue.append({"offset": offset, "bytes": count, "drop": int(drop), "end": int(at == len(plan) - 1)})
            if not drop and count:
                wanted.append((offset, packet[place : place + count]))
            place += count
    total = sum(-(-(offset + len(piece)) // width) for offset, piece in wanted)
    taken = await sink.wait(total)
    for offset, piece in wanted:
        found, first = b"", True
        while True:
            item = taken.pop(0)
            where = [byte for byte in range(width) if item["strb"] >> byte & 1]
            assert where[0] == (offset if first else 0) and where == list(range(where[0], where[-1] + 1))
            found += item["data"].to_bytes(width, "little")[where[0] : where[-1] + 1]
            first = False
            if item["last"]:
                break
        assert found == piece
    assert not taken
    return sink.taken


@cocotb.test()
@cocotb.parametrize(load=GRID)
async def pieces_lie_as_commanded(dut, load):
    pick, width = random.Random(21), len(dut.m_data) // 8
    made = []
    for _ in range(120):
        plan = [(0, pick.choice([16, 20]), True)]
        for _ in range(pick.randrange(4)):
            plan.append((pick.randrange(width), pick.choice([1, width - 1, width, 2 * width + 3, 5 * width]), pick.random() < 0.1))
        rest = pick.choice([0, 0, 1, width, 3 * width])
        made.append((pick.randbytes(sum(count for _, count, _ in plan) + rest), plan))
    await bench(dut, load, made)


@cocotb.test()
@cocotb.parametrize(header=[16, 20])
async def a_segment_takes_a_clock_a_beat(dut, header):
    pick, width = random.Random(22), len(dut.m_data) // 8
    made = [(pick.randbytes(header + 1472), [(0, header, True), (0, 1472, False)]) for _ in range(6)]
    taken = await bench(dut, (0, 0), made)
    # From the first data on: five segments more.
    clocks = taken[-1][0] - taken[0][0] + 1
    assert clocks <= 1472 // width + 5 * (-(-header // width) + 1472 // width)

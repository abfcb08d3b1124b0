"""es_peb_intake: every TLP comes out whole, with its header, and is told good exactly if docs/wire.md takes it."""

import random

import cocotb
from cocotb.triggers import RisingEdge

from axis import GRID, Sink, Source, start
from wire import beats, packets, vectors

MOST = 16 + 4096


async def bench(dut, load, made, dropped=0):
    """`made`: TLPs with whether they are good; those longer than any TLP do not come out."""
    width = len(dut.s_axis_tdata)
    source = Source(dut, "s_axis_t", load[0])
    heads = Sink(dut, "m_hdr_", ["tlp", "good"], load[1], seed=3)
    sink = Sink(dut, "m_axis_t", ["data", "keep", "last"], load[1])
    dut.clear.value = 1
    await start(dut)
    dut.clear.value = 0
    kept = [(tlp, good) for tlp, good in made if len(tlp) <= MOST]
    for tlp, _ in made:
        source.queue.extend(beats(tlp, width))
    taken = packets(await sink.wait(sum(-(-len(tlp) // (width // 8)) for tlp, _ in kept), 400_000))
    assert taken == [tlp for tlp, _ in kept]
    told = await heads.wait(len(kept))
    for (tlp, good), head in zip(kept, told):
        count = min(16, len(tlp))
        assert head["tlp"].to_bytes(16, "big")[:count] == tlp[:count]
        assert head["good"] == good, tlp.hex()
    for _ in range(20):
        await RisingEdge(dut.clk)
    assert len(heads.taken) == len(kept)
    assert int(dut.stat_overlong.value) == len(made) - len(kept)
    return sink


def known():
    return [(bytes.fromhex(vector["bytes"]), int("error" not in vector)) for vector in vectors("tlps") if vector["bytes"]]


@cocotb.test()
@cocotb.parametrize(load=GRID)
async def the_vectors_are_told_apart(dut, load):
    made = known()
    random.Random(31).shuffle(made)
    await bench(dut, load, made)


@cocotb.test()
@cocotb.parametrize(load=[(0, 0), (0, 50), (50, 50)])
async def long_ones_come_whole_and_too_long_ones_not_at_all(dut, load):
    pick = random.Random(32)
    made = []
    for at in range(60):
        data = pick.choice([1, 2, 3, 63, 64, 65, 255, 1023, 1024])
        tlp = (0x40000000 | data & 0x3FF).to_bytes(4, "big") + bytes.fromhex("0300000f" if data == 1 else "030000ff") + at.to_bytes(2, "big") + bytes(2)
        made.append((tlp + pick.randbytes(4 * data), 1))
        if at % 5 == 0:
            made.append((pick.randbytes(MOST + pick.choice([1, 4, 64, 5000])), 0))
    await bench(dut, load, made)


@cocotb.test()
@cocotb.parametrize(data=[1, 64])
async def a_beat_takes_a_clock(dut, data):
    width = len(dut.s_axis_tdata) // 8
    tlp = (0x40000000 | data).to_bytes(4, "big") + bytes.fromhex("0300000f" if data == 1 else "030000ff") + bytes(4) + bytes(4 * data)
    sink = await bench(dut, (0, 0), [(tlp, 1)] * 12)
    beat = -(-len(tlp) // width)
    assert sink.taken[-1][0] - sink.taken[0][0] + 1 == 12 * beat

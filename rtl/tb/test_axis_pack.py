"""es_axis_pack: packets are the bytes of their pieces, in order and without gaps."""

import random

import cocotb

from axis import GRID, Sink, Source, start

OUT = ["data", "keep", "last"]


def beats(piece, offset, width):
    """The beats of a piece whose first byte is byte `offset` of its first beat."""
    while piece:
        part, piece = piece[: width - offset], piece[width - offset :]
        yield offset, part
        offset = 0


def items(packet, width, pick):
    """Items for the source: `packet` is a list of (offset, bytes)."""
    made = []
    for offset, piece in packet:
        made += list(beats(piece, offset, width))
    for at, (offset, part) in enumerate(made):
        noise = bytes(pick.getrandbits(8) for _ in range(width))
        data = noise[:offset] + part + noise[offset + len(part) :]
        yield {
            "data": int.from_bytes(data, "little"), "offset": offset, "bytes": len(part), "last": int(at == len(made) - 1),
            "valid": 1,
        }


def packets(taken, width):
    """Packets out of taken items; checks that only last beats have holes."""
    found, packet = [], b""
    for item in taken:
        keep = item["keep"]
        count = keep.bit_count()
        assert keep == (1 << count) - 1 and count and (item["last"] or count == width)
        packet += item["data"].to_bytes(width, "little")[:count]
        if item["last"]:
            found.append(packet)
            packet = b""
    assert not packet
    return found


async def bench(dut, load, made, pick):
    width = len(dut.s_data) // 8
    source, sink = Source(dut, "s_", load[0]), Sink(dut, "m_axis_t", OUT, load[1])
    await start(dut)
    offered = [item for packet in made for item in items(packet, width, pick)]
    for item in offered:
        del item["valid"]
    source.queue.extend(offered)
    wanted = [b"".join(piece for _, piece in packet) for packet in made]
    await sink.wait(sum(-(-len(packet) // width) for packet in wanted))
    assert packets([item for _, item in sink.taken], width) == wanted
    return sink.taken


@cocotb.test()
@cocotb.parametrize(load=GRID)
async def packets_are_the_bytes_of_their_pieces(dut, load):
    pick, width = random.Random(11), len(dut.s_data) // 8
    made = []
    for _ in range(120):
        pieces = [(pick.randrange(width), pick.randbytes(pick.choice([1, 2, width - 1, width, 3 * width + 1]))) for _ in range(pick.randrange(1, 5))]
        made.append(pieces)
    await bench(dut, load, made, pick)


@cocotb.test()
@cocotb.parametrize(header=[16, 20])
async def a_header_costs_its_bytes_and_no_clock(dut, header):
    """Segments of 1472 bytes behind a header: one clock a beat, from the first to the last."""
    pick, width = random.Random(12), len(dut.s_data) // 8
    first = header % width or width
    made = []
    for _ in range(6):
        head = pick.randbytes(header)
        made.append([(0, head[:first]), *([(0, head[first:])] if header > first else []), (0, pick.randbytes(1472))])
    taken = await bench(dut, (0, 0), made, pick)
    clocks = taken[-1][0] - taken[0][0] + 1
    beats_in = -(-header // width) + 1472 // width
    assert clocks <= 6 * max(beats_in, -(-(header + 1472) // width))

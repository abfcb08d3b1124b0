"""es_rnic: two QPs of one core talk to each other over the link, data in host memory; and bad segments from a peer that the test plays."""

import json
import random
from pathlib import Path

import cocotb

import rnic
from rnic import Rnic, receive_wqe, segment, send_wqe, sge

SOURCE, SINK = 0x100000, 0x200000


async def pair(dut, **second):
    """QP 2 and QP 3, connected; regions 1 (source) and 2 (sink), of 64 KiB."""
    core = Rnic(dut)
    core.loop = True
    await core.start()
    for number in (2, 3):
        await core.cq(number)
    await core.qp(2, 3, to=rnic.RTR)
    await core.qp(3, 2, to=rnic.RTR, **second)
    for number in (2, 3):
        assert await core.go(number, rnic.RTS)
    core.source = await core.register(1, SOURCE, 0x10000, rnic.REMOTE_READ)
    core.sink = await core.register(2, SINK, 0x10000, rnic.REMOTE_WRITE | rnic.LOCAL_WRITE)
    core.pick = random.Random(5)
    core.memory[SOURCE : SOURCE + 0x10000] = core.pick.randbytes(0x10000)
    return core


@cocotb.test()
@cocotb.parametrize(length=[1, 8, 1472, 1473, 10000], at=[(0, 0), (3, 5), (0xFFD, 0x7F9)])
async def a_write_places_its_bytes_and_no_others(dut, length, at):
    core = await pair(dut)
    source, sink = SOURCE + at[0], SINK + at[1]
    before = bytes(core.memory[SINK : SINK + 0x10000])
    await core.post(2, send_wqe(rnic.WRITE, 77, [sge(source, core.source, length)], (core.sink, sink)))
    assert await core.completion(2) == (77, 0, rnic.WRITE, 2, length, 0)
    wanted = bytearray(before)
    wanted[at[1] : at[1] + length] = core.memory[source : source + length]
    assert core.memory[SINK : SINK + 0x10000] == wanted


@cocotb.test()
async def a_region_of_pages_is_written_where_its_pages_are(dut):
    core = await pair(dut)
    pages = [SINK + 0x3000, SINK + 0x1000, SINK + 0x7000, SINK]
    stag = await core.register(3, 0x123, 0x3000, rnic.REMOTE_WRITE, pages=pages)
    await core.post(2, send_wqe(rnic.WRITE, 1, [sge(SOURCE, core.source, 0x3000)], (stag, 0x123)))
    assert (await core.completion(2))[1] == 0
    placed = core.memory[pages[0] + 0x123 : pages[0] + 0x1000] + core.memory[pages[1] : pages[1] + 0x1000]
    placed += core.memory[pages[2] : pages[2] + 0x1000] + core.memory[pages[3] : pages[3] + 0x123]
    assert placed == core.memory[SOURCE : SOURCE + 0x3000]


@cocotb.test()
async def writes_of_two_sges_and_inline_ones_follow_each_other_in_order(dut):
    core = await pair(dut)
    wqes, wanted, at = [], b"", SINK + 9
    for turn in range(12):
        if turn % 3 == 0:
            data = core.pick.randbytes(core.pick.randrange(1, 33))
            wqes.append(send_wqe(rnic.WRITE, turn, (), (core.sink, at), inline=data))
        else:
            parts = [(SOURCE + core.pick.randrange(0x8000), core.pick.randrange(turn % 2, 3000)) for _ in range(2)]
            data = b"".join(core.memory[place : place + count] for place, count in parts)
            wqes.append(send_wqe(rnic.WRITE, turn, [sge(place, core.source, count) for place, count in parts], (core.sink, at)))
        wanted += data
        at += len(data)
    await core.post(2, *wqes)
    for turn in range(12):
        assert (await core.completion(2))[:2] == (turn, 0)
    assert core.memory[SINK + 9 : at] == wanted


@cocotb.test()
@cocotb.parametrize(length=[0, 5, 4000])
async def a_read_brings_its_bytes(dut, length):
    core = await pair(dut)
    await core.post(2, *(send_wqe(rnic.READ, turn, [sge(SINK + 3 + turn * 5000, core.sink, length)], (core.source, SOURCE + 5)) for turn in range(6)))
    for turn in range(6):
        assert await core.completion(2) == (turn, 0, rnic.READ, 2, length, 0)
        place = SINK + 3 + turn * 5000
        assert core.memory[place : place + length] == core.memory[SOURCE + 5 : SOURCE + 5 + length]


@cocotb.test()
async def sends_fill_receive_wqes_in_order(dut):
    core = await pair(dut)
    wanted = []
    for turn in range(6):
        parts = [sge(SINK + turn * 0x1000 + 1, core.sink, 100), sge(SINK + turn * 0x1000 + 200, core.sink, 3), sge(SINK + turn * 0x1000 + 300, core.sink, 3000)]
        await core.fill(3, receive_wqe(500 + turn, parts))
    for turn in range(6):
        length = [1, 100, 101, 1473, 3000, 0][turn]
        data = core.memory[SOURCE + turn : SOURCE + turn + length]
        await core.post(2, send_wqe(rnic.SEND, turn, [sge(SOURCE + turn, core.source, length)] if length else []))
        wanted.append(data)
    for turn, data in enumerate(wanted):
        assert await core.completion(3) == (500 + turn, 0, 0x80, 3, len(data), 0)
        assert (await core.completion(2))[:2] == (turn, 0)
        base = SINK + turn * 0x1000
        placed = core.memory[base + 1 : base + 101] + core.memory[base + 200 : base + 203] + core.memory[base + 300 : base + 3300]
        assert placed[: len(data)] == data


@cocotb.test()
async def a_fence_waits_for_reads(dut):
    core = await pair(dut)
    await core.post(
        2, send_wqe(rnic.READ, 1, [sge(SINK, core.sink, 3000)], (core.source, SOURCE)),
        send_wqe(rnic.WRITE, 2, [sge(SINK, core.source - 0x100 + 0x100, 0)], (core.sink, SINK + 0x8000), flags=rnic.SIGNALED | rnic.FENCE),
    )
    assert (await core.completion(2))[:2] == (1, 0)
    assert (await core.completion(2))[:2] == (2, 0)
    opcodes = [packet[3] & 15 for _, packet in core.sent]
    assert opcodes.index(0) > max(at for at, opcode in enumerate(opcodes) if opcode == 2)


@cocotb.test()
async def segments_are_those_of_the_vectors(dut):
    """What the test takes for a segment is what vectors/ say; what the core sends is what the test takes for it."""
    codes = {"write": 0, "read_request": 1, "read_response": 2, "send": 3, "send_solicited": 5, "synchronise": 12, "acknowledge": 13}
    held = 0
    for entry in json.loads((Path(__file__).parents[2] / "vectors" / "segments.json").read_text()):
        fields = entry.get("fields", {})
        if not entry.get("canonical") or fields["opcode"] not in codes:
            continue
        place = {"tagged": (fields["stag"], int(fields["to"], 16))} if "to" in fields else {
            "untagged": tuple(fields[name] for name in ("ulp", "qn", "msn", "mo"))}
        made = segment(fields["qp"], codes[fields["opcode"]], bytes.fromhex(fields["data"]), fields["last"], **place)
        assert made.hex() == entry["bytes"], entry["name"]
        held += 1
    assert held > 10
    core = await pair(dut)
    core.sent.clear()
    await core.fill(3, receive_wqe(1, [sge(SINK, core.sink, 4000)]))
    await core.post(2, send_wqe(rnic.WRITE, 1, [sge(SOURCE, core.source, 1500)], (core.sink, SINK + 1)))
    await core.completion(2)
    await core.post(2, send_wqe(rnic.SEND, 2, [sge(SOURCE, core.source, 1500)], flags=rnic.SIGNALED | rnic.SOLICITED))
    await core.completion(2)
    await core.post(2, send_wqe(rnic.READ, 3, [sge(SINK, core.sink, 77)], (core.source, SOURCE + 9)))
    await core.completion(2)
    data = bytes(core.memory[SOURCE : SOURCE + 1500])
    request = (15 << 28).to_bytes(4, "big") + bytes(8) + (77).to_bytes(4, "big") + core.source.to_bytes(4, "big") + (SOURCE + 9).to_bytes(8, "big")
    wanted = [
        segment(3, 0, data[:1472], False, tagged=(core.sink, SINK + 1)), segment(3, 0, data[1472:], True, tagged=(core.sink, SINK + 1473)),
        segment(2, 13, untagged=(0, 4, 2, 0)),
        segment(3, 5, data[:1472], False, untagged=(0, 0, 1, 0)), segment(3, 5, data[1472:], True, untagged=(0, 0, 1, 1472)),
        segment(2, 13, untagged=(0, 4, 3, 0)), segment(3, 1, request, untagged=(0, 1, 1, 0)),
        segment(2, 13, untagged=(0, 4, 4, 0)), segment(2, 2, data[9:86], tagged=(15 << 28, 0)),
    ]
    assert [packet.hex() for _, packet in core.sent] == [packet.hex() for packet in wanted]


@cocotb.test()
async def a_read_of_more_than_a_message_fails_and_brings_nothing(dut):
    core = await pair(dut)
    await core.post(2, send_wqe(rnic.READ, 1, [sge(SINK, core.sink, 0x80000001)], (core.source, SOURCE)))
    assert (await core.completion(2))[:2] == (1, 1)
    requests = [packet for _, packet in core.sent if packet[3] & 15 == 1]
    assert all(packet[32:36] == bytes(4) for packet in requests)


BAD = {
    "no such STag": (lambda core: (0x7777, SINK), 10, 0x1100),
    "another key": (lambda core: (core.sink ^ 1, SINK), 10, 0x1100),
    "in front of the region": (lambda core: (core.sink, SINK - 1), 10, 0x1101),
    "beyond the region": (lambda core: (core.sink, SINK + 0x10000 - 63), 10, 0x1101),
    "past the end of all": (lambda core: (core.sink, (1 << 64) - 63), 10, 0x1103),
    "no right to write": (lambda core: (core.source, SOURCE), 10, 0x0102),
    "another protection domain": (lambda core: (core.foreign, SINK), 10, 0x1102),
}


@cocotb.test()
@cocotb.parametrize(case=list(BAD))
async def a_write_that_is_refused_places_nothing_and_ends_both_qps(dut, case):
    core = await pair(dut)
    core.foreign = await core.register(4, SINK, 0x10000, rnic.REMOTE_WRITE, pd=8)
    before = bytes(core.memory[SINK - 4096 : SINK + 0x10000])
    remote, status, cause = BAD[case][0](core), *BAD[case][1:]
    await core.fill(3, receive_wqe(900, [sge(SINK, core.sink, 64)]))
    await core.post(2, send_wqe(rnic.WRITE, 1, [sge(SOURCE, core.source, 64)], remote), send_wqe(rnic.WRITE, 2, [sge(SOURCE, core.source, 8)], (core.sink, SINK)))
    assert (await core.completion(2))[:2] == (1, status)
    assert (await core.completion(2))[:2] == (2, 5), "what is behind is flushed"
    assert (await core.completion(3))[:2] == (900, 5), "receive WQEs are flushed"
    assert core.memory[SINK - 4096 : SINK + 0x10000] == before
    (_, packet), = [entry for entry in core.sent if entry[1][3] & 15 == 7][:1]
    wrong, = [entry for entry in core.sent if entry[1][3] & 15 == 0 and len(entry[1]) == 80][:1]
    assert packet[20:22] == cause.to_bytes(2, "big") and packet[22] == 0xC0
    assert packet[24:26] == (78).to_bytes(2, "big") and packet[26:40] == wrong[1][2:16]
    for number in (2, 3):
        assert await core.host.read_dword(rnic.QPC + 256 * number) & 15 == rnic.ERROR


@cocotb.test()
async def a_local_region_that_is_refused_fails_its_wqe(dut):
    core = await pair(dut)
    await core.post(2, send_wqe(rnic.WRITE, 1, [sge(SOURCE, core.source ^ 1, 64)], (core.sink, SINK)))
    assert (await core.completion(2))[:2] == (1, 4)
    await core.quiet()
    assert not [packet for _, packet in core.sent if packet[3] & 15 == 0]


@cocotb.test()
async def wqes_that_are_not_allowed_fail(dut):
    core = await pair(dut)
    await core.post(2, send_wqe(99, 1, [], (0, 0)), send_wqe(rnic.NOTHING, 2))
    assert (await core.completion(2))[:2] == (1, 2)
    assert (await core.completion(2))[:2] == (2, 5)


@cocotb.test()
async def bad_segments_of_every_kind_place_nothing(dut):
    """Whatever comes from the link: nothing outside the sink changes, the core goes on."""
    core = await pair(dut)
    core.loop = False
    outside = bytes(core.memory[: SINK]), bytes(core.memory[SINK + 0x10000 :])
    pick = random.Random(9)
    for _ in range(150):
        base = pick.choice([
            segment(pick.choice([0, 2, 3, 19]), pick.randrange(16), pick.randbytes(pick.choice([0, 4, 28, 61])), pick.random() < 0.5,
                    tagged=(pick.choice([core.sink, core.source, 5]), pick.choice([SINK, SINK - 1, 2**64 - 1]))),
            segment(pick.choice([0, 2, 3]), pick.randrange(16), pick.randbytes(pick.choice([0, 4, 28, 61])), pick.random() < 0.5,
                    untagged=(pick.randrange(3), pick.randrange(6), pick.randrange(3), pick.choice([0, 0, 8]))),
        ])
        flipped = bytearray(base)
        if pick.random() < 0.3:
            flipped[pick.randrange(4)] ^= 1 << pick.randrange(8)
        core.inject(bytes(flipped[: pick.choice([len(base), len(base), pick.randrange(1, 20)])]), pick.choice([7, 7, 7, 6]))
        if pick.random() < 0.1:
            for number in (2, 3):
                await core.go(number, rnic.RESET)
                for state in (rnic.INIT, rnic.RTR, rnic.RTS):
                    await core.go(number, state)
    await core.quiet(3000)
    assert not core.heads.queue and not core.stream.queue, "the core takes what comes"
    # Rings of completion queues lie below the source: CQEs of the QPs' ends go there.
    assert core.memory[SINK + 0x10000 :] == outside[1] and core.memory[SOURCE:SINK] == outside[0][SOURCE:]

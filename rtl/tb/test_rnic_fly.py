"""es_rnic: the on-the-fly windows, BOTF and AOTF, and the flags of PUSH and PULL (docs/rnic.md, 12 and 13)."""

import random

import cocotb
from cocotb.triggers import RisingEdge

import rnic
from rnic import receive_wqe, send_wqe, sge
from test_rnic import SINK, SOURCE, pair

LOCAL, REMOTE = SINK + 0xF000, SINK + 0xF800  # where flags are


def writes(core, qp=3):
    """Data of the Writes to this QP that left, one entry a segment."""
    return [packet[16:] for _, packet in core.sent if packet[3] & 15 == 0 and packet[:2] == qp.to_bytes(2, "big")]


def word(core, place):
    return int.from_bytes(core.memory[place : place + 8], "little")


async def until(dut, holds, what, clocks=6_000):
    for _ in range(clocks):
        if holds():
            return
        await RisingEdge(dut.clk)
    raise AssertionError(what)


@cocotb.test()
@cocotb.parametrize(length=[1, 8, 32, 33, 96, 97, 160, 479, 480])
async def a_message_written_into_the_window_is_sent_by_its_kick(dut, length):
    core = await pair(dut)
    data = core.pick.randbytes(length)
    await core.kick(2, send_wqe(rnic.WRITE, 5, (), (core.sink, SINK + 3), inline=data), pick=core.pick)
    assert await core.completion(2) == (5, 0, rnic.WRITE, 2, length, 0)
    assert core.memory[SINK + 3 : SINK + 3 + length] == data
    await core.fill(3, receive_wqe(6, [sge(SINK + 0x1001, core.sink, 480)]))
    await core.kick(2, send_wqe(rnic.SEND, 7, inline=data), pick=core.pick)
    assert await core.completion(3) == (6, 0, 0x80, 3, length, 0)
    assert (await core.completion(2))[:2] == (7, 0)
    assert core.memory[SINK + 0x1001 : SINK + 0x1001 + length] == data
    assert core.memory[SINK + 0x1001 + length] == 0


@cocotb.test()
@cocotb.parametrize(length=[33, 100, 480])
async def inline_data_of_several_blocks_come_out_of_the_ring_too(dut, length):
    core = await pair(dut)
    parts = [core.pick.randbytes(length) for _ in range(5)]
    at = SINK
    for turn, data in enumerate(parts):
        # The ring ends within one of them.
        await core.post(2, send_wqe(rnic.WRITE, turn, (), (core.sink, at), inline=data))
        assert (await core.completion(2))[:2] == (turn, 0)
        at += length
    assert core.memory[SINK:at] == b"".join(parts)


@cocotb.test()
async def a_store_sends_the_header_of_its_place_with_its_value(dut):
    core = await pair(dut)
    for place in range(16):
        header = send_wqe(rnic.WRITE, 100 + place, (), (core.sink, SINK + 8 * place), inline=bytes(8))
        await core.prepare(2, place, header)
        assert (await core.host.read(rnic.BAR2 + 4096 * 2 + rnic.HEADERS + 64 * place, 64)).data == header
    values = {}
    for turn in range(40):
        place, values[place] = core.pick.randrange(16), core.pick.getrandbits(64)
        await core.store(2, place, values[place])
        if turn % 3 == 0:
            continue
        while core.seen[2] <= turn:
            assert (await core.completion(2))[1] == 0
    while core.seen[2] < 40:
        assert (await core.completion(2))[1] == 0
    for place, value in values.items():
        assert word(core, SINK + 8 * place) == value


@cocotb.test()
async def a_store_can_be_a_send(dut):
    core = await pair(dut)
    await core.fill(3, *(receive_wqe(turn, [sge(SINK + 16 * turn, core.sink, 8)]) for turn in range(4)))
    await core.prepare(2, 9, send_wqe(rnic.SEND, 1, inline=bytes(8)))
    for turn in range(4):
        await core.store(2, 9, turn + 1)
    for turn in range(4):
        assert await core.completion(3) == (turn, 0, 0x80, 3, 8, 0)
        assert word(core, SINK + 16 * turn) == turn + 1


@cocotb.test()
async def the_first_word_of_a_header_leaves_so_many_clocks_after_its_store(dut):
    core = await pair(dut)
    await core.prepare(2, 1, send_wqe(rnic.WRITE, 1, (), (core.sink, SINK), inline=bytes(8)))
    long = send_wqe(rnic.WRITE, 1, (), (core.sink, SINK), inline=bytes(300))
    for at in range(0, len(long), 8):
        await core.host.write(rnic.BAR2 + 4096 * 2 + rnic.BOTF + at, long[at : at + 8])
    # A wide beat of the long one has data behind its header, which come a block a clock.
    ways = [(lambda: core.store(2, 1, 7), 4)]
    ways.append((lambda: core.host.write_dword(rnic.BAR2 + 4096 * 2 + rnic.BOTF_KICK, len(long) // 64), {8: 4, 16: 4, 32: 5, 64: 6}[core.width]))
    for way, wanted in ways:
        await core.quiet()
        cocotb.start_soon(way())
        while not (dut.s_axil_awvalid.value and dut.s_axil_awready.value):
            await RisingEdge(dut.clk)
        clocks = 0
        while not dut.m_axis_tvalid.value:
            await RisingEdge(dut.clk)
            clocks += 1
        assert clocks == wanted


@cocotb.test()
async def what_is_on_the_fly_stays_behind_what_the_doorbell_handed_over(dut):
    core = await pair(dut)
    order = []
    await core.prepare(2, 3, send_wqe(rnic.WRITE, 0x33, (), (core.sink, SINK), inline=bytes(8)))
    # A long one first, so that the others have to wait.
    await core.post(2, send_wqe(rnic.WRITE, 1, [sge(SOURCE, core.source, 20000)], (core.sink, SINK + 0x1000)))
    order.append(1)
    for turn in range(10):
        kind = turn % 3
        identifier = 10 + turn
        if kind == 0:
            await core.kick(2, send_wqe(rnic.WRITE, identifier, (), (core.sink, SINK), inline=bytes([turn]) * (turn * 11 + 1)))
        elif kind == 1:
            await core.post(2, send_wqe(rnic.WRITE, identifier, (), (core.sink, SINK), inline=bytes([turn]) * 70))
        else:
            await core.store(2, 3, turn)
            identifier = 0x33
        order.append(identifier)
    for identifier in order:
        assert (await core.completion(2))[:2] == (identifier, 0)
    assert [data[0] for data in writes(core)[-10:]] == list(range(10))
    assert await core.dropped(2) == 0


@cocotb.test()
async def a_kick_that_finds_no_room_is_dropped_and_counted(dut):
    core = await pair(dut)
    core.beats.pause = 100
    kept = []
    for turn in range(40):
        before = await core.dropped(2)
        await core.kick(2, send_wqe(rnic.WRITE, turn, (), (core.sink, SINK + turn * 128), inline=bytes([turn + 1]) * 90))
        if await core.dropped(2) == before:
            kept.append(turn)
    assert 10 < len(kept) < 40
    dropped = 40 - len(kept)
    assert await core.dropped(2) == dropped and await core.host.read_qword(0x210) == dropped
    core.beats.pause = 0
    for turn in kept:
        assert (await core.completion(2))[:2] == (turn, 0)
    assert [data[0] - 1 for data in writes(core)] == kept and all(data == data[:1] * 90 for data in writes(core))


@cocotb.test()
async def what_is_no_message_is_dropped_and_counted(dut):
    core = await pair(dut)
    page = rnic.BAR2 + 4096 * 2
    good = send_wqe(rnic.WRITE, 1, (), (core.sink, SINK), inline=bytes(40))
    count = 0
    await core.host.write_dword(page + rnic.BOTF_KICK, 1)  # nothing was written
    count += 1
    for blocks in (0, 1, 3, 9, 10, 16, 255):
        await core.kick(2, good, blocks=blocks)
        count += 1
    await core.store(2, 4, 1)  # no header
    count += 1
    broken = bytearray(send_wqe(rnic.WRITE, 1, (), (core.sink, SINK), inline=bytes(8)))
    for at, value in ((0, rnic.READ), (1, 1), (1, rnic.INLINE | rnic.FLAGS), (2, 2), (4, 9), (4, 7)):
        bad = broken[:]
        bad[at] = value
        await core.prepare(2, 4, bytes(bad))
        await core.store(2, 4, 1)
        count += 1
    assert await core.dropped(2) == count and await core.host.read_qword(0x210) == count
    # Halves of a place, and what is beside the windows, are nothing at all.
    await core.prepare(2, 4, bytes(broken))
    await core.host.write_dword(page + rnic.AOTF + 8 * 4, 1)
    await core.host.write_qword(page + rnic.AOTF + 8 * 16, 1)
    await core.host.write_qword(page + rnic.BOTF + 576, 1)
    await core.host.write(page + rnic.BOTF_KICK, b"\1\0")
    await core.quiet()
    assert await core.dropped(2) == count
    assert not writes(core)
    await core.kick(2, good)
    assert (await core.completion(2))[:2] == (1, 0)


LONG = {
    "longer than a WQE holds": (9, 481),
    "longer than its blocks": (1, 33),
    "shorter than its blocks": (3, 96),
    "longer than all": (1, 0xFFFFFFFF),
    "longer than it seems": (1, 512),
}


@cocotb.test()
@cocotb.parametrize(case=list(LONG), ring=[False, True])
async def a_length_out_of_range_fails_its_wqe_and_sends_nothing(dut, case, ring):
    core = await pair(dut)
    blocks, length = LONG[case]
    wqe = bytearray(send_wqe(rnic.WRITE, 8, (), (core.sink, SINK), inline=bytes([1])).ljust(64 * blocks, b"\1"))
    wqe[2], wqe[4:8] = blocks, length.to_bytes(4, "little")
    if ring:
        await core.post(2, bytes(wqe), send_wqe(rnic.NOTHING, 9))
    else:
        await core.kick(2, bytes(wqe))
        await core.kick(2, send_wqe(rnic.NOTHING, 9))
    assert (await core.completion(2))[:2] == (8, 2)
    assert (await core.completion(2))[:2] == (9, 5)
    await core.quiet()
    assert not writes(core) and await core.dropped(2) == 0


@cocotb.test()
@cocotb.parametrize(blocks=[0, 3, 10])
async def a_wqe_in_the_ring_with_blocks_that_are_not_there_ends_the_ring(dut, blocks):
    core = await pair(dut)
    wqe = bytearray(send_wqe(rnic.WRITE, 8, (), (core.sink, SINK), inline=bytes(4)))
    wqe[2] = blocks
    await core.post(2, bytes(wqe), send_wqe(rnic.NOTHING, 9))
    assert (await core.completion(2))[:2] == (8, 2)
    await core.quiet()
    assert not writes(core)
    # What is behind cannot be told apart; the windows can.
    await core.kick(2, send_wqe(rnic.NOTHING, 10))
    assert (await core.completion(2))[:2] == (10, 5)
    await renew(core)
    await core.post(2, send_wqe(rnic.WRITE, 1, (), (core.sink, SINK), inline=b"again"))
    assert (await core.completion(2))[:2] == (1, 0)


async def renew(core):
    """Both QPs from RESET to RTS."""
    for number in (2, 3):
        await core.go(number, rnic.RESET)
    await core.quiet(100)
    for number in (2, 3):
        core.posted[number] = 0
        for state in (rnic.INIT, rnic.RTR):
            assert await core.go(number, state)
    for number in (2, 3):
        assert await core.go(number, rnic.RTS)
    await core.quiet(100)
    core.sent.clear()


@cocotb.test()
async def a_qp_that_does_not_send_takes_no_kick(dut):
    core = await pair(dut)
    wqe = send_wqe(rnic.WRITE, 8, (), (core.sink, SINK), inline=bytes(100))
    await core.qp(4, 5, to=rnic.INIT)
    header = send_wqe(rnic.WRITE, 9, (), (core.sink, SINK), inline=bytes(8))
    for state in (rnic.INIT, rnic.RTR):
        if state == rnic.RTR:
            assert await core.go(4, rnic.RTR)
        await core.kick(4, wqe)
        await core.prepare(4, 0, header)
        await core.store(4, 0, 1)
    assert await core.dropped(4) == 4
    await core.kick(5, wqe)
    assert await core.dropped(5) == 1  # RESET
    # SQD: it waits, and hinders nobody.
    assert await core.go(2, rnic.SQD)
    await core.kick(2, wqe)
    await core.post(3, send_wqe(rnic.WRITE, 1, (), (core.sink, SINK), inline=b"other"))
    assert (await core.completion(3))[:2] == (1, 0)
    assert not writes(core) and core.seen[2] == 0
    assert await core.go(2, rnic.RTS)
    assert (await core.completion(2))[:2] == (8, 0)
    # ERROR: it is flushed.
    assert await core.go(2, rnic.ERROR)
    await core.kick(2, wqe)
    assert (await core.completion(2))[:2] == (8, 5)
    assert await core.dropped(2) == 0


@cocotb.test()
async def nothing_of_a_qp_outlives_its_reset(dut):
    core = await pair(dut)
    secret = bytes(range(1, 101))
    core.beats.pause = 100
    for turn in range(9):
        await core.kick(2, send_wqe(rnic.WRITE, turn, (), (core.sink, SINK), inline=secret))
    await core.prepare(2, 0, send_wqe(rnic.WRITE, 1, (), (core.sink, SINK), inline=bytes(8)))
    await core.post(2, *(send_wqe(rnic.WRITE, turn, (), (core.sink, SINK), inline=secret) for turn in range(3)))
    for number in (2, 3):
        await core.go(number, rnic.RESET)
    core.beats.pause = 0
    await core.quiet()
    core.seen[2] = core.seen[3] = 0
    for number in (2, 3):
        await core.cq(number)
        core.memory[rnic.CQ + 0x1000 * number : rnic.CQ + 0x1000 * (number + 1)] = bytes(0x1000)
    await renew(core)
    await core.quiet(1000)
    assert core.seen[2] == 0 and not any(core.memory[rnic.CQ + 0x2000 : rnic.CQ + 0x3000]), "no CQE of what was before"
    assert not writes(core)
    assert not any((await core.host.read(rnic.BAR2 + 4096 * 2 + rnic.HEADERS, 64)).data)
    # Of a message that is stored in part the rest is zero.
    part = send_wqe(rnic.WRITE, 8, (), (core.sink, SINK + 0x100), inline=b"\7" * 100)
    await core.kick(2, part[:64], blocks=3)
    assert (await core.completion(2))[:2] == (8, 0)
    assert core.memory[SINK + 0x100 : SINK + 0x100 + 100] == b"\7" * 32 + bytes(68)


@cocotb.test()
@cocotb.parametrize(length=[0, 8, 3000], way=["ring", "kick", "inline"])
async def a_push_is_told_at_both_sides_behind_its_data(dut, length, way):
    core = await pair(dut)
    if way == "inline" and length == 3000:
        length = 200
    tell = ((core.sink, LOCAL, 0x1122334455667788), (core.sink, REMOTE, 0x99AABBCCDDEEFF00))
    inline = core.memory[SOURCE : SOURCE + length] if way == "inline" else b""
    sges = [sge(SOURCE, core.source, length)] if way != "inline" else []
    wqe = send_wqe(rnic.WRITE, 5, sges, (core.sink, SINK + 8), inline=inline, tell=tell)
    follower = send_wqe(rnic.WRITE, 6, (), (core.sink, SINK + 0x8000), inline=b"behind")
    if way == "kick":
        await core.kick(2, wqe)
        await core.kick(2, follower)
    else:
        await core.post(2, wqe, follower)
    await until(dut, lambda: word(core, REMOTE), "the peer is told")
    assert core.memory[SINK + 8 : SINK + 8 + length] == core.memory[SOURCE : SOURCE + length]
    assert (await core.completion(2))[:2] == (5, 0)
    assert word(core, LOCAL) == 0x1122334455667788 and word(core, REMOTE) == 0x99AABBCCDDEEFF00
    assert (await core.completion(2))[:2] == (6, 0)
    sent = writes(core)
    assert sent[-2:] == [bytes.fromhex("00ffeeddccbbaa99"), b"behind"]


@cocotb.test()
async def a_pull_tells_the_peer_when_its_data_are_here_and_what_is_behind_waits(dut):
    core = await pair(dut)
    tell = ((core.sink, LOCAL, 7), (core.sink, REMOTE, 8))
    await core.post(
        2, send_wqe(rnic.READ, 4, [sge(SINK + 0x6000, core.sink, 100)], (core.source, SOURCE)),
        send_wqe(rnic.READ, 5, [sge(SINK + 1, core.sink, 5000)], (core.source, SOURCE + 77), tell=tell),
        send_wqe(rnic.WRITE, 6, (), (core.sink, SINK + 0x8000), inline=b"behind"),
    )
    # Another QP goes on meanwhile.
    await core.post(3, send_wqe(rnic.WRITE, 1, (), (core.sink, SINK + 0x9000), inline=b"other"))
    assert (await core.completion(2))[:2] == (4, 0)
    assert (await core.completion(2))[:5] == (5, 0, rnic.READ, 2, 5000)
    assert word(core, LOCAL) == 7 and word(core, REMOTE) == 8
    assert core.memory[SINK + 1 : SINK + 5001] == core.memory[SOURCE + 77 : SOURCE + 5077]
    assert (await core.completion(2))[:2] == (6, 0)
    assert (await core.completion(3))[:2] == (1, 0)
    opcodes = [(packet[3] & 15, packet[1]) for _, packet in core.sent]
    last_data = max(at for at, (opcode, _) in enumerate(opcodes) if opcode == 2)
    to_peer = [at for at, (opcode, qp) in enumerate(opcodes) if opcode == 0 and qp == 3]
    assert min(to_peer) > last_data and writes(core) == [(8).to_bytes(8, "little"), b"behind"]


@cocotb.test()
@cocotb.parametrize(opcode=[0, 5], which=[0, 1, 2, 3], signaled=[False, True])
async def each_side_is_told_if_it_was_asked_for(dut, opcode, which, signaled):
    core = await pair(dut)
    tell = ((core.sink, LOCAL, 3) if which & 1 else None, (core.sink, REMOTE, 4) if which & 2 else None)
    sges, remote = ([sge(SOURCE, core.source, 64)], (core.sink, SINK)) if opcode == rnic.WRITE else ([sge(SINK, core.sink, 64)], (core.source, SOURCE))
    await core.post(2, send_wqe(opcode, 1, sges, remote, flags=int(signaled), tell=tell), send_wqe(rnic.NOTHING, 2))
    if signaled:
        assert (await core.completion(2))[:2] == (1, 0)
    assert (await core.completion(2))[:2] == (2, 0)
    assert (word(core, LOCAL), word(core, REMOTE)) == (3 * (which & 1), 4 * (which >> 1))
    assert core.memory[SINK : SINK + 64] == core.memory[SOURCE : SOURCE + 64]


BAD_FLAGS = {
    "local, not aligned": (lambda core: ((core.sink, LOCAL + 4, 1), (core.sink, REMOTE, 2)), 2),
    "remote, not aligned": (lambda core: ((core.sink, LOCAL, 1), (core.sink, REMOTE + 1, 2)), 2),
    "local, no such STag": (lambda core: ((core.sink ^ 1, LOCAL, 1), None), 4),
    "local, no right": (lambda core: ((core.source, SOURCE, 1), None), 4),
    "local, beyond the region": (lambda core: ((core.sink, SINK + 0x10000, 1), None), 4),
    "local, an odd place in memory": (lambda core: ((core.odd, 0x4000, 1), None), 4),
    "remote, no such STag": (lambda core: ((core.sink, LOCAL, 1), (core.sink ^ 1, REMOTE, 2)), 10),
    "remote, no right": (lambda core: ((core.sink, LOCAL, 1), (core.source, SOURCE, 2)), 10),
}


@cocotb.test()
@cocotb.parametrize(case=list(BAD_FLAGS))
async def a_flag_that_is_refused_is_not_stored_and_fails_its_wqe(dut, case):
    core = await pair(dut)
    core.odd = await core.register(6, LOCAL + 4, 0x100, rnic.LOCAL_WRITE, base=0x4000)
    before = bytes(core.memory[SOURCE:SINK]), bytes(core.memory[SINK + 0x10000 : SINK + 0x10010])
    make, status = BAD_FLAGS[case]
    wqe = send_wqe(rnic.WRITE, 1, [sge(SOURCE, core.source, 64)], (core.sink, SINK), tell=make(core))
    await core.post(2, wqe, send_wqe(rnic.WRITE, 2, (), (core.sink, SINK), inline=b"late"))
    assert (await core.completion(2))[:2] == (1, status)
    assert (await core.completion(2))[:2] == (2, 5)
    await core.quiet()
    assert not any(core.memory[LOCAL - 8 : LOCAL + 16]) and (word(core, REMOTE) == 0 or status == 4)
    assert (core.memory[SOURCE:SINK], core.memory[SINK + 0x10000 : SINK + 0x10010]) == before


@cocotb.test()
async def a_flag_is_not_stored_if_the_data_are_refused(dut):
    core = await pair(dut)
    tell = ((core.sink, LOCAL, 1), (core.sink, REMOTE, 2))
    await core.post(2, send_wqe(rnic.READ, 1, [sge(SINK, core.sink, 64)], (core.source ^ 1, SOURCE), tell=tell))
    assert (await core.completion(2))[:2] == (1, 10)
    await core.quiet()
    assert word(core, LOCAL) == 0 and word(core, REMOTE) == 0


@cocotb.test()
@cocotb.parametrize(solicited=[False, True])
async def a_send_with_invalidate_names_its_stag_and_is_refused_where_there_are_no_windows(dut, solicited):
    core = await pair(dut)
    await core.fill(3, receive_wqe(1, [sge(SINK, core.sink, 64)]))
    flags = rnic.SIGNALED | (rnic.SOLICITED if solicited else 0)
    await core.post(2, send_wqe(rnic.SEND_INVALIDATE, 2, [sge(SOURCE, core.source, 20)], flags=flags, word=core.sink))
    assert (await core.completion(2))[:2] == (2, 10)
    assert (await core.completion(3))[:2] == (1, 5)
    packet, = [packet for _, packet in core.sent if packet[3] & 15 == (6 if solicited else 4)]
    assert packet == rnic.segment(3, 6 if solicited else 4, core.memory[SOURCE : SOURCE + 20], untagged=(core.sink, 0, 1, 0))


class Score:
    """What each QP is to have sent, in order, and what is to be in memory in the end."""

    def __init__(self, core, qp, peer, pick):
        self.core, self.qp, self.peer, self.pick = core, qp, peer, pick
        self.identifiers, self.received, self.left, self.messages, self.at = [], [], 0, [], 0

    async def place(self, count):
        """A place of its own in the sink; again the first when all that is under way is done."""
        if self.at + count > 0x8000:
            while self.identifiers:
                await self.complete()
            self.at = 0
        self.at, at = self.at + count + 7 & ~7, self.at
        return SINK + 0x8000 * (self.qp - 2) + at

    async def room(self, blocks):
        """Waits until so many blocks more are surely taken."""
        while self.left + blocks > 24:
            await self.complete()

    async def complete(self):
        entry = await self.core.completion(self.qp)
        while entry[2] == 0x80:
            assert entry[:2] == (self.received.pop(0), 0)
            entry = await self.core.completion(self.qp)
        identifier, blocks, after = self.identifiers.pop(0)
        assert entry[:2] == (identifier, 0)
        self.left -= blocks
        for place, data in after:
            assert self.core.memory[place : place + len(data)] == data, f"the CQE of {identifier} tells of what is not there, at {place:#x}"

    async def step(self, turn):
        core, pick = self.core, self.pick
        length = pick.choice([1, 8, 31, 32, 33, 96, 97, pick.randrange(1, 481), 480])
        kind = pick.choice(["aotf", "write", "send", "pull", "inline", "inline"])
        tell, after = None, []
        source = SOURCE + pick.randrange(0x8000)
        if kind in ("write", "pull"):
            length = pick.choice([length, pick.randrange(1, 3000)])
        place = await self.place(length)
        data = bytes(core.memory[source : source + length])
        if kind != "aotf" and pick.random() < 0.5:
            which, places = pick.randrange(4), [await self.place(8), await self.place(8)]
            values = [pick.getrandbits(64), pick.getrandbits(64)]
            tell = tuple((core.sink, places[side], values[side]) if which >> side & 1 else None for side in (0, 1))
            after = [(flag[1], flag[2].to_bytes(8, "little")) for flag in tell if flag]
        flags = rnic.SIGNALED | (rnic.FENCE if pick.random() < 0.1 else 0)
        if kind == "aotf":
            data, place = pick.randbytes(8), await self.place(8)
            wqe = send_wqe(rnic.WRITE, turn, (), (core.sink, place), inline=bytes(8))
        elif kind == "write":
            cut = pick.randrange(length + 1)
            parts = [sge(source, core.source, cut), sge(source + cut, core.source, length - cut)]
            wqe = send_wqe(rnic.WRITE, turn, parts, (core.sink, place), flags, tell=tell)
        elif kind == "pull":
            wqe = send_wqe(rnic.READ, turn, [sge(place, core.sink, length)], (core.source, source), flags, tell=tell)
        elif kind == "send":
            self.other.received.append(turn)
            await core.fill(self.peer, receive_wqe(turn, [sge(place, core.sink, length)]))
            wqe = send_wqe(rnic.SEND, turn, (), flags=flags, inline=data[: min(length, 480)], tell=tell)
            data = data[:480]
        else:
            data = data[:480]
            wqe = send_wqe(rnic.WRITE, turn, (), (core.sink, place), flags, inline=data, tell=tell)
        blocks = len(wqe) // 64
        await self.room(blocks)
        if kind == "aotf":
            await core.prepare(self.qp, turn % 16, wqe)
            await core.store(self.qp, turn % 16, int.from_bytes(data, "little"))
        elif pick.random() < 0.5:
            await core.kick(self.qp, wqe, pick=pick)
        else:
            await core.post(self.qp, wqe)
        self.identifiers.append((turn, blocks, [(place, data), *after]))
        self.left += blocks
        if kind != "pull":
            self.messages.append(data)
        if tell and tell[1]:
            self.messages.append(tell[1][2].to_bytes(8, "little"))

    def left_as_ordered(self):
        """The data of its Writes and Sends, put together again, in the order of its WQEs."""
        got, part = [], b""
        for _, packet in self.core.sent:
            if packet[:2] != self.peer.to_bytes(2, "big") or packet[3] & 15 not in (0, 3):
                continue
            part += packet[16 if packet[2] & 0x80 else 20 :]
            if packet[2] & 0x40:
                got.append(part)
                part = b""
        assert got == self.messages


@cocotb.test()
@cocotb.parametrize(pressure=[0, 60], seed=[1, 2])
async def whatever_is_posted_kicked_and_stored_comes_out_in_order(dut, pressure, seed):
    core = await pair(dut)
    pick = random.Random(seed * 100 + pressure)
    core.records.pause = core.beats.pause = pressure
    core.stream.idle = pressure // 2
    if pressure:
        for port in core.ports[:2]:
            port.r_channel.set_pause_generator(iter(lambda: pick.random() < 0.4, None))
            port.ar_channel.set_pause_generator(iter(lambda: pick.random() < 0.4, None))
        for channel in (core.ports[2].aw_channel, core.ports[2].w_channel):
            channel.set_pause_generator(iter(lambda: pick.random() < 0.4, None))
    scores = [Score(core, 2, 3, pick), Score(core, 3, 2, pick)]
    scores[0].other, scores[1].other = reversed(scores)
    for turn in range(60):
        await scores[pick.randrange(2)].step(turn)
    for score in scores:
        while score.identifiers:
            await score.complete()
    await core.quiet()
    for score in scores:
        score.left_as_ordered()
        assert await core.dropped(score.qp) == 0

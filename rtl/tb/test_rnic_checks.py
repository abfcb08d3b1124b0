"""es_rnic: every check of docs/rnic.md, 9 and 15, with the cause that it tells, the counter that counts it, and the status that it gives.
The test plays the peer.
"""

import cocotb
from cocotb.triggers import RisingEdge

import rnic
from coverage_rnic import cover
from rnic import Rnic, receive_wqe, segment, send_wqe, sge
from test_rnic import SINK, SOURCE

QP, PEER_QP = 4, 9
COUNTERS = {
    "truncated": 0x188, "no_qp": 0x190, "not_ready": 0x198, "malformed": 0x1A0, "foreign": 0x1A8, "denied": 0x1B0, "sequence": 0x1B8, "answers": 0x1C0,
    "too_long": 0x1C8, "irrq": 0x1D0,
}


async def alone(dut, rights=7, begin=True):
    """QP 4 in RTS, its peer begun; regions 1 (to be read), 2 (to be written), 3 (of another protection domain)."""
    core = Rnic(dut)
    await core.start()
    await core.cq(QP)
    await core.qp(QP, PEER_QP, rights=rights)
    core.source = await core.register(1, SOURCE, 0x1000, rnic.REMOTE_READ)
    core.sink = await core.register(2, SINK, 0x1000, rnic.REMOTE_WRITE | rnic.LOCAL_WRITE)
    core.foreign = await core.register(3, SINK, 0x1000, rnic.REMOTE_READ | rnic.REMOTE_WRITE, pd=8)
    core.memory[SOURCE : SOURCE + 0x1000] = bytes(range(256)) * 16
    if begin:
        core.inject(segment(QP, 12, untagged=(1, 4, 1, 2)))
    await core.quiet(100)
    core.sent.clear()
    return core


def write(core, stag=None, to=SINK, data=bytes(8)):
    return segment(QP, 0, data, tagged=(core.sink if stag is None else stag, to))


def read(core, stag=None, to=SOURCE, length=8, msn=1, mo=0, cut=28, last=True):
    body = (5).to_bytes(4, "big") + bytes(8) + length.to_bytes(4, "big") + (core.source if stag is None else stag).to_bytes(4, "big") + to.to_bytes(8, "big")
    return segment(QP, 1, body.ljust(cut, b"\0")[:cut], last, untagged=(0, 1, msn, mo))


def send(data=bytes(8), opcode=3, qn=0, msn=1, mo=0, last=True):
    return segment(QP, opcode, data, last, untagged=(0, qn, msn, mo))


def changed(packet, at, mask):
    return packet[:at] + bytes([packet[at] ^ mask]) + packet[at + 1 :]


# What comes; cause of the Terminate; what is counted.
CAUSES = {
    "Write, another DDP version": (lambda core: changed(write(core), 2, 3), 0x1104, "malformed"),
    "Send, another DDP version": (lambda core: changed(send(), 2, 2), 0x1206, "malformed"),
    "no such queue": (lambda core: send(qn=5), 0x1201, "malformed"),
    "another RDMAP version": (lambda core: changed(write(core), 3, 0x80), 0x0205, "malformed"),
    "an opcode of none": (lambda core: send(opcode=10), 0x0206, "malformed"),
    "a Write without tag": (lambda core: send(opcode=0), 0x0206, "malformed"),
    "a Send with tag": (lambda core: segment(QP, 3, bytes(8), tagged=(core.sink, SINK)), 0x0206, "malformed"),
    "a Send in another queue": (lambda core: send(qn=1), 0x0206, "malformed"),
    "Write, no such STag": (lambda core: write(core, stag=0x7700), 0x1100, "denied"),
    "Write, another key": (lambda core: write(core, stag=core.sink ^ 1), 0x1100, "denied"),
    "Write, out of bounds": (lambda core: write(core, to=SINK + 0xFF9), 0x1101, "denied"),
    "Write, another domain": (lambda core: write(core, stag=core.foreign), 0x1102, "denied"),
    "Write, past the end of all": (lambda core: write(core, to=2**64 - 1), 0x1103, "denied"),
    "Write, no right": (lambda core: write(core, stag=core.source, to=SOURCE), 0x0102, "denied"),
    "Read, no such STag": (lambda core: read(core, stag=0x7700), 0x0100, "denied"),
    "Read, out of bounds": (lambda core: read(core, to=SOURCE - 1), 0x0101, "denied"),
    "Read, no right": (lambda core: read(core, stag=core.sink, to=SINK), 0x0102, "denied"),
    "Read, another domain": (lambda core: read(core, stag=core.foreign, to=SINK), 0x0103, "denied"),
    "Read, past the end of all": (lambda core: read(core, to=2**64 - 1), 0x0104, "denied"),
    "Read, another MSN": (lambda core: read(core, msn=2), 0x1203, "sequence"),
    "Read, another MO": (lambda core: read(core, mo=8), 0x1204, "sequence"),
    "Read, not whole": (lambda core: read(core, last=False), 0x1204, "sequence"),
    "Read, too short": (lambda core: read(core, cut=27), 0x1204, "sequence"),
    "Send, another MSN": (lambda core: send(msn=2), 0x1203, "sequence"),
    "Send, another MO": (lambda core: send(mo=8), 0x1204, "sequence"),
    "Send, longer than its buffer": (lambda core: send(bytes(65)), 0x1205, "too_long"),
    "Send with Invalidate, no window": (lambda core: send(opcode=4), 0x0209, "denied"),
    "a beginning that is out of place": (lambda core: segment(QP, 12, untagged=(1, 4, 7, 3)), 0x0207, "sequence"),
    "a Response that nobody asked for": (lambda core: segment(QP, 2, bytes(8), tagged=(0xF << 28, 0)), 0x0000, "answers"),
}


async def counted(core):
    counts = {name: count for name, place in COUNTERS.items() if (count := await core.host.read_qword(place))}
    for name in counts:
        cover(f"dropped: {name}")
    return counts


def terminates(core):
    return [packet for _, packet in core.sent if packet[3] & 15 == 7]


@cocotb.test()
@cocotb.parametrize(case=list(CAUSES))
async def a_segment_that_is_refused_tells_its_cause_once_and_places_nothing(dut, case):
    core = await alone(dut)
    make, cause, counter = CAUSES[case]
    await core.fill(QP, receive_wqe(70, [sge(SINK, core.sink, 64)]))
    core.inject(make(core))
    core.inject(write(core, data=b"too late"))  # of a QP that is in ERROR
    await core.quiet(400)
    packet, = terminates(core)
    assert packet[20:22] == cause.to_bytes(2, "big"), packet.hex()
    assert not any(core.memory[SINK : SINK + 0x1000])
    assert await counted(core) == {counter: 1, "no_qp": 1}
    assert await core.host.read_dword(rnic.QPC + 256 * QP) & 15 == rnic.ERROR
    assert (await core.completion(QP))[:2] == (70, 1 if counter == "too_long" else 5)


@cocotb.test()
@cocotb.parametrize(kind=["write", "send"])
async def a_message_that_another_breaks_off_is_refused(dut, kind):
    core = await alone(dut)
    await core.fill(QP, receive_wqe(70, [sge(SINK + 64, core.sink, 64)]))
    if kind == "write":
        core.inject(segment(QP, 0, bytes(8), False, tagged=(core.sink, SINK)))
        core.inject(send())
    else:
        core.inject(send(last=False))
        core.inject(write(core))
    await core.quiet(400)
    packet, = terminates(core)
    assert packet[20:22] == bytes.fromhex("0207")
    assert await counted(core) == {"sequence": 1}
    assert (await core.completion(QP))[:2] == (70, 5)


@cocotb.test()
async def a_send_of_which_not_all_memory_is_ours_does_not_leave(dut):
    core = await alone(dut)
    sges = [sge(SOURCE, core.source, 40), sge(SINK, core.foreign, 40)]
    await core.post(QP, send_wqe(rnic.SEND, 1, sges))
    assert (await core.completion(QP))[:2] == (1, 4)
    await core.quiet()
    assert [packet[3] & 15 for _, packet in core.sent] == [7]


@cocotb.test()
async def not_ready_tells_of_what_was_taken_before(dut):
    core = await alone(dut)
    await core.post(QP, *(send_wqe(rnic.WRITE, turn, (), (5, 0), inline=b"x") for turn in range(3)))
    await core.quiet()
    core.inject(segment(QP, 13, untagged=(1, 4, 2, 100)))
    for wanted in ((0, 0), (1, 13), (2, 5)):
        assert (await core.completion(QP))[:2] == wanted


@cocotb.test()
@cocotb.parametrize(kind=["write", "read"])
async def what_the_peer_may_not_do_is_refused(dut, kind):
    core = await alone(dut, rights=4)
    core.inject(write(core) if kind == "write" else read(core))
    await core.quiet()
    assert terminates(core)[0][20:22] == bytes.fromhex("0102") and await counted(core) == {"denied": 1}


@cocotb.test()
async def more_reads_than_may_be_are_refused(dut):
    core = await alone(dut)
    core.beats.pause = 100
    # One is with the segment generator; it is not answered before its last byte has left for memory.
    for msn in range(1, 7):
        core.inject(read(core, length=0x1000, msn=msn))
    await core.quiet(2000)
    core.beats.pause = 0
    await core.quiet(4000)
    assert terminates(core)[0][20:22] == bytes.fromhex("1202") and (await counted(core))["irrq"] == 1


@cocotb.test()
async def a_receive_wqe_whose_memory_is_not_its_own_fails(dut):
    core = await alone(dut)
    await core.fill(QP, receive_wqe(70, [sge(SINK, core.foreign, 64)]), receive_wqe(71, [sge(SINK, core.sink, 64)]))
    core.inject(send())
    assert (await core.completion(QP))[:2] == (70, 4)
    assert (await core.completion(QP))[:2] == (71, 5)
    assert terminates(core)[0][20:22] == bytes(2) and not any(core.memory[SINK : SINK + 64])


@cocotb.test()
async def what_is_of_no_qp_is_dropped_and_counted(dut):
    core = await alone(dut, begin=False)
    core.inject(write(core))  # nothing was begun
    core.inject(b"\0\4\x41")
    core.inject(write(core), peer=6)
    core.inject(changed(write(core), 1, 0x10))  # an earlier life of its place
    await core.quiet()
    assert await counted(core) == {"not_ready": 1, "truncated": 1, "foreign": 1, "no_qp": 1}
    assert not core.sent and not any(core.memory[SINK : SINK + 64])
    # A beginning for a QP that is not there is answered, to QP 0 and on stream 1; one that is out of place as the QP's own.
    core.inject(segment(QP + 16, 12, untagged=(1, 4, 1, 2)))
    core.inject(segment(QP, 12, untagged=(1, 4, 7, 3)))
    await core.quiet()
    wanted = [segment(0, 13, untagged=(2, 4, 2, QP + 16)), segment(PEER_QP, 13, untagged=(2, 4, 3, QP))]
    assert [packet for _, packet in core.sent] == wanted
    assert [item["stream"] for _, item in core.records.taken[-2:]] == [1, rnic.STREAM]


@cocotb.test()
async def a_send_that_finds_no_receive_wqe_is_told_not_ready_and_begun_anew(dut):
    core = await alone(dut)
    core.inject(send(b"early..."))
    core.inject(send(b"behind..", msn=2))
    await core.quiet()
    assert [packet for _, packet in core.sent] == [segment(PEER_QP, 13, untagged=(1, 4, 1, 100))]
    await core.fill(QP, receive_wqe(70, [sge(SINK, core.sink, 64)]))
    core.inject(segment(QP, 12, untagged=(1, 4, 1, 3)))
    core.inject(send(b"now it is"[:8]))
    assert (await core.completion(QP))[:2] == (70, 0)
    assert core.memory[SINK : SINK + 8] == b"now it i"


ANSWERS = {
    "Terminate, of no cause": (lambda core: segment(QP, 7, bytes(4), untagged=(0, 2, 1, 0)), 11),
    "Terminate, access": (lambda core: segment(QP, 7, bytes.fromhex("01010000"), untagged=(0, 2, 1, 0)), 10),
    "Terminate, protocol": (lambda core: segment(QP, 7, bytes.fromhex("02060000"), untagged=(0, 2, 1, 0)), 9),
    "not ready": (lambda core: segment(QP, 13, untagged=(1, 4, 1, 100)), 13),
    "no QP": (lambda core: segment(QP, 13, untagged=(2, 4, 2, PEER_QP)), 12),
    "a Response of another STag": (lambda core: segment(QP, 2, bytes(8), tagged=((0xF << 28) + 1, 0)), 7),
    "a Response out of place": (lambda core: segment(QP, 2, bytes(8), tagged=(0xF << 28, 8)), 7),
    "a Response that ends too soon": (lambda core: segment(QP, 2, bytes(8), tagged=(0xF << 28, 0)), 7),
    "a Response that is too long": (lambda core: segment(QP, 2, bytes(72), tagged=(0xF << 28, 0)), 7),
}


@cocotb.test()
@cocotb.parametrize(case=list(ANSWERS))
async def an_answer_that_is_none_fails_the_oldest_wqe(dut, case):
    core = await alone(dut)
    await core.post(QP, send_wqe(rnic.READ, 1, [sge(SINK, core.sink, 64)], (5, 0)), send_wqe(rnic.WRITE, 2, (), (5, 0), inline=b"x"))
    await core.quiet()
    make, status = ANSWERS[case]
    core.inject(make(core))
    assert (await core.completion(QP))[:2] == (1, status)
    assert (await core.completion(QP))[:2] == (2, 5)
    assert not any(core.memory[SINK : SINK + 0x100])


@cocotb.test()
async def a_sink_that_is_not_ours_to_write_fails_its_read(dut):
    core = await alone(dut)
    await core.post(QP, send_wqe(rnic.READ, 1, [sge(SOURCE, core.source, 64)], (5, 0)))
    before = bytes(core.memory[SOURCE : SOURCE + 64])
    await core.quiet()
    core.inject(segment(QP, 2, bytes(64), tagged=(0xF << 28, 0)))
    assert (await core.completion(QP))[:2] == (1, 4)
    assert core.memory[SOURCE : SOURCE + 64] == before


@cocotb.test()
async def acknowledges_of_what_was_not_sent_complete_nothing(dut):
    core = await alone(dut)
    await core.post(QP, send_wqe(rnic.WRITE, 1, (), (5, 0), inline=b"x"))
    await core.quiet()
    for message in (0, 1, 3, 0x80000001):
        core.inject(segment(QP, 13, untagged=(0, 4, message, 0)))
    await core.quiet()
    assert core.seen[QP] == 0 and not any(core.memory[rnic.CQ + 0x1000 * QP : rnic.CQ + 0x1000 * QP + 32])
    core.inject(segment(QP, 13, untagged=(0, 4, 2, 0)))
    assert (await core.completion(QP))[:2] == (1, 0)
    await RisingEdge(dut.clk)

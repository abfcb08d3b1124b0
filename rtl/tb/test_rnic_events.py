"""es_rnic: what is told by events and by interrupts of vector 0 (docs/rnic.md, 5), what becomes of the QPs of a peer that was lost (15), and FENCE (2)."""

import cocotb
from cocotb.triggers import RisingEdge

import rnic
from rnic import receive_wqe, segment, send_wqe, sge
from test_rnic import SINK, SOURCE
from test_rnic_checks import PEER_QP, QP, alone, send, terminates, write

QP_ERROR, CQ_OVERRUN, SQ_DRAINED, ESTABLISHED, ACCESS_VIOLATION, PEER_LOST = 1, 2, 4, 5, 6, 7


class Interrupts:
    """Counts those of vector 0."""

    def __init__(self, dut):
        self.dut, self.count = dut, 0
        cocotb.start_soon(self.watch())

    async def watch(self):
        while True:
            await RisingEdge(self.dut.clk)
            self.count += int(self.dut.irq_valid.value and not int(self.dut.irq_vector.value))


@cocotb.test()
async def without_anything_to_tell_there_is_no_event(dut):
    core = await alone(dut)
    told = Interrupts(dut)
    core.inject(write(core))
    await core.post(QP, send_wqe(rnic.WRITE, 1, (), (5, 0), inline=b"x"))
    await core.quiet()
    core.inject(segment(QP, 13, untagged=(0, 4, 2, 0)))
    assert (await core.completion(QP))[:2] == (1, 0)
    await core.quiet()
    assert await core.events() == [] and told.count == 0


@cocotb.test()
async def a_violation_of_access_is_told(dut):
    core = await alone(dut)
    told = Interrupts(dut)
    core.inject(write(core, stag=core.foreign))
    await core.quiet()
    assert told.count == 1
    assert await core.events() == [(ACCESS_VIOLATION, QP)]


@cocotb.test()
async def a_fault_that_no_wqe_can_tell_is_an_event(dut):
    core = await alone(dut)
    core.inject(segment(QP, 7, bytes.fromhex("02060000"), untagged=(0, 2, 1, 0)))
    await core.quiet()
    assert await core.events() == [(QP_ERROR, QP)]


@cocotb.test()
async def a_fault_that_a_wqe_tells_is_none(dut):
    core = await alone(dut)
    await core.post(QP, send_wqe(rnic.WRITE, 1, (), (5, 0), inline=b"x"))
    await core.quiet()
    core.inject(segment(QP, 7, bytes.fromhex("02060000"), untagged=(0, 2, 1, 0)))
    assert (await core.completion(QP))[:2] == (1, 9)
    await core.quiet()
    assert await core.events() == []


@cocotb.test()
async def a_queue_is_drained_when_its_last_wqe_is_complete(dut):
    core = await alone(dut)
    await core.post(QP, *(send_wqe(rnic.WRITE, turn, (), (5, 0), inline=b"x") for turn in range(3)))
    await core.quiet()
    assert await core.go(QP, rnic.SQD)
    await core.quiet()
    assert await core.events() == []
    core.inject(segment(QP, 13, untagged=(0, 4, 4, 0)))
    for turn in range(3):
        assert (await core.completion(QP))[:2] == (turn, 0)
    await core.quiet()
    assert await core.events() == [(SQ_DRAINED, QP)]
    # Once each time.
    await core.quiet()
    assert await core.events() == []
    assert await core.go(QP, rnic.RTS) and await core.go(QP, rnic.SQD)
    await core.quiet()
    assert await core.events() == [(SQ_DRAINED, QP)]


@cocotb.test()
async def the_first_message_in_rtr_is_told(dut):
    core = await alone(dut, begin=False)
    await core.qp(5, PEER_QP, to=rnic.RTR, cq=QP)
    core.inject(segment(5, 12, untagged=(1, 4, 1, 2)))
    for turn in range(2):
        core.inject(segment(5, 0, bytes(8), tagged=(core.sink, SINK)))
    await core.quiet()
    assert await core.events() == [(ESTABLISHED, 5)]


@cocotb.test()
async def a_cq_that_overruns_is_told_once(dut):
    core = await alone(dut)
    await core.cq(3, log2=1)
    await core.qp(6, PEER_QP, cq=3)
    await core.post(6, *(send_wqe(rnic.NOTHING, turn) for turn in range(5)))
    await core.quiet()
    assert await core.events() == [(CQ_OVERRUN, 3)]


@cocotb.test()
async def events_wait_until_they_are_fetched(dut):
    core = await alone(dut)
    told = Interrupts(dut)
    for number in (5, 6, 7):
        await core.qp(number, PEER_QP, cq=QP)
        core.inject(segment(number, 12, untagged=(1, 4, 1, 2)))
        core.inject(segment(number, 0, bytes(8), tagged=(core.foreign, SINK)))
    core.inject(write(core, stag=core.foreign))
    await core.quiet(600)
    assert sorted(await core.events()) == [(ACCESS_VIOLATION, number) for number in (QP, 5, 6, 7)]
    assert 1 <= told.count <= 4


@cocotb.test()
async def with_its_peer_a_qp_fails_what_is_under_way(dut):
    core = await alone(dut)
    await core.qp(5, PEER_QP, cq=QP)
    await core.post(QP, *(send_wqe(rnic.WRITE, turn, (), (5, 0), inline=b"x") for turn in range(3)))
    await core.fill(QP, receive_wqe(70, [sge(SINK, core.sink, 64)]))
    await core.quiet()
    core.sent.clear()
    await core.lose()
    assert [(await core.completion(QP))[:2] for _ in range(4)].count((0, 12)) == 1
    await core.quiet()
    assert await core.host.read_dword(rnic.QPC + 256 * QP) & 15 == rnic.ERROR
    # The other one had nothing to do: it is told, and fails what comes.
    assert await core.events() == [(PEER_LOST, 5)]
    assert not terminates(core), "there is nobody to be told"
    assert await core.host.read_dword(rnic.QPC + 256 * 5) & 15 == rnic.RTS
    await core.post(5, send_wqe(rnic.SEND, 9, [sge(SOURCE, core.source, 8)]), send_wqe(rnic.SEND, 10, [sge(SOURCE, core.source, 8)]))
    assert (await core.completion(QP))[:2] == (9, 12)
    assert (await core.completion(QP))[:2] == (10, 5)
    assert not core.sent or all(packet[3] & 15 == 7 for _, packet in core.sent), "nothing of it leaves"


@cocotb.test()
async def another_peers_loss_is_none_of_ours(dut):
    core = await alone(dut)
    await core.lose(rnic.PEER + 1)
    core.inject(send())
    await core.post(QP, send_wqe(rnic.WRITE, 1, (), (5, 0), inline=b"x"))
    await core.quiet()
    core.inject(segment(QP, 13, untagged=(0, 4, 2, 0)))
    assert (await core.completion(QP))[:2] == (1, 0)
    assert await core.events() == []


@cocotb.test()
async def a_qp_that_begins_anew_has_its_peer_again(dut):
    core = await alone(dut)
    await core.lose()
    assert await core.events() == [(PEER_LOST, QP)]
    assert await core.go(QP, rnic.RESET)
    await core.qp(QP, PEER_QP)
    await core.post(QP, send_wqe(rnic.WRITE, 1, (), (5, 0), inline=b"x"))
    await core.quiet()
    core.inject(segment(QP, 13, untagged=(0, 4, 2, 0)))
    assert (await core.completion(QP))[:2] == (1, 0)


FENCE, DONE = 0x060, 0xFFFFFFFF


@cocotb.test()
async def a_fence_with_nothing_under_way_is_done(dut):
    core = await alone(dut)
    assert await core.host.read_dword(FENCE) == DONE
    await core.host.write_dword(FENCE, 2)
    await core.quiet(20)
    assert await core.host.read_dword(FENCE) == DONE


@cocotb.test()
async def a_fence_waits_for_data_that_are_read(dut):
    core = await alone(dut)
    port = core.ports[0].r_channel
    port.pause = True
    await core.post(QP, send_wqe(rnic.WRITE, 1, [sge(SOURCE, core.source, 256)], (5, 0)))
    await core.quiet()
    await core.host.write_dword(FENCE, 1)
    await core.quiet()
    assert await core.host.read_dword(FENCE) == 1
    port.pause = False
    await core.quiet()
    assert await core.host.read_dword(FENCE) == DONE


@cocotb.test()
async def a_fence_waits_for_data_that_are_written(dut):
    core = await alone(dut)
    port = core.ports[2].b_channel
    port.pause = True
    core.inject(write(core, data=bytes(range(64))))
    await core.quiet()
    await core.host.write_dword(FENCE, 2)
    await core.quiet()
    assert await core.host.read_dword(FENCE) == 2
    port.pause = False
    await core.quiet()
    assert await core.host.read_dword(FENCE) == DONE


@cocotb.test()
async def a_fence_ends_while_others_go_on(dut):
    core = await alone(dut)
    stop = []

    async def traffic():
        turn = 0
        while not stop:
            core.inject(write(core, data=bytes(512)))
            turn += 1
            await core.quiet(70)

    cocotb.start_soon(traffic())
    for turn in range(5):
        await core.host.write_dword(FENCE, 2)
        for _ in range(40):
            if await core.host.read_dword(FENCE) == DONE:
                break
        else:
            raise AssertionError("the fence never ends")
    stop.append(True)
    await core.quiet()

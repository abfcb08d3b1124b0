"""es_rnic: pages that are not there are told by MISS and an interrupt, and looked up again when the driver has answered (docs/rnic.md, 6)."""

import cocotb
from cocotb.triggers import RisingEdge

import rnic
from coverage_rnic import cover
from rnic import receive_wqe, segment, send_wqe, sge
from test_rnic import SINK, SOURCE, pair

MISS, MISSES = 0x080, 0x218
INDEX, COUNT = 6, 4
PLACES = [SOURCE + 0x5000, SOURCE + 0x4000, SOURCE + 0x7000, SOURCE + 0x6000]
RIGHTS = rnic.LOCAL_WRITE | rnic.REMOTE_READ | rnic.REMOTE_WRITE


class Driver:
    """Answers misses, with the page if `brings`; looks at MISS after an interrupt of vector 0 only."""

    def __init__(self, core, brings=True):
        self.core, self.brings, self.served, self.told = core, brings, [], 0
        cocotb.start_soon(self.watch())
        cocotb.start_soon(self.run())

    async def watch(self):
        while True:
            await RisingEdge(self.core.dut.clk)
            if self.core.dut.irq_valid.value and not int(self.core.dut.irq_vector.value):
                self.told += 1

    async def run(self):
        answered = 0
        while True:
            await RisingEdge(self.core.dut.clk)
            if answered == self.told:
                continue
            answered = self.told
            while miss := await self.core.host.read_qword(MISS):
                stag, page = miss >> 32, miss & 0xFFFFFFFF
                assert stag == self.core.lazy
                await self.core.quiet(50)
                if self.brings:
                    await self.core.bring(INDEX * 64 + page, PLACES[page])
                self.served.append(page)
                await self.core.host.write_qword(MISS, miss)


async def lazy(dut):
    """QP 2 and QP 3, and a region of four pages of which none is there."""
    core = await pair(dut)
    core.lazy = await core.register(INDEX, 0, COUNT * 4096, RIGHTS, pages=[None] * COUNT)
    return core


def lies(core, at, count):
    return b"".join(core.memory[PLACES[byte >> 12] + byte % 4096 : PLACES[byte >> 12] + byte % 4096 + 1] for byte in range(at, at + count))


@cocotb.test()
async def what_is_sent_waits_for_its_pages(dut):
    core = await lazy(dut)
    driver = Driver(core)
    await core.post(2, send_wqe(rnic.WRITE, 1, [sge(0xF00, core.lazy, 5000)], (core.sink, SINK + 3)))
    assert (await core.completion(2, 20_000))[:2] == (1, 0)
    assert core.memory[SINK + 3 : SINK + 5003] == lies(core, 0xF00, 5000)
    assert driver.served == [0, 1, 2] and await core.host.read_qword(MISSES) == 3
    cover("missed: sent")


@cocotb.test()
async def what_is_read_waits_for_its_pages_at_either_side(dut):
    core = await lazy(dut)
    driver = Driver(core)
    await core.post(2, send_wqe(rnic.READ, 1, [sge(0x2F00, core.lazy, 3000)], (core.source, SOURCE)))
    assert (await core.completion(2, 20_000))[:2] == (1, 0)
    assert lies(core, 0x2F00, 3000) == core.memory[SOURCE : SOURCE + 3000]
    assert driver.served == [2, 3]
    await core.post(2, send_wqe(rnic.READ, 2, [sge(SINK, core.sink, 3000)], (core.lazy, 0x10)))
    assert (await core.completion(2, 20_000))[:2] == (2, 0)
    assert core.memory[SINK : SINK + 3000] == lies(core, 0x10, 3000)
    assert driver.served == [2, 3, 0]
    cover("missed: answered")


@cocotb.test()
@cocotb.parametrize(kind=["write", "send"])
async def a_request_of_the_peer_is_told_not_ready_until_its_page_is_there(dut, kind):
    core = await lazy(dut)
    core.loop = False
    core.sent.clear()
    data = bytes(range(100))
    await core.fill(3, receive_wqe(70, [sge(0x1FF0, core.lazy, 200)]))
    if kind == "write":
        parts = [segment(3, 0, data, tagged=(core.lazy, 0x1FF0))]
    else:
        parts = [segment(3, 3, data[:48], False, untagged=(0, 0, 1, 0)), segment(3, 3, data[48:], untagged=(0, 0, 1, 48))]
    for page in (1, 2):
        for part in parts:
            core.inject(part)
        await core.quiet()
        assert [packet for _, packet in core.sent] == [segment(2, 13, untagged=(1, 4, 1, 100))]
        core.sent.clear()
        assert await core.host.read_qword(MISS) == core.lazy << 32 | page
        await core.bring(INDEX * 64 + page, PLACES[page])
        await core.host.write_qword(MISS, core.lazy << 32 | page)
        assert await core.host.read_qword(MISS) == 0
        core.inject(segment(3, 12, untagged=(1, 4, 1, 3 + page)))
    for part in parts:
        core.inject(part)
    await core.quiet()
    assert [packet for _, packet in core.sent] == [segment(2, 13, untagged=(0, 4, 2, 0))]
    assert lies(core, 0x1FF0, 100) == data
    if kind == "send":
        assert (await core.completion(3))[:2] == (70, 0)
    cover(f"missed: {kind} of the peer")


@cocotb.test()
async def a_page_that_is_not_brought_fails_its_wqe_and_others_go_on(dut):
    core = await lazy(dut)
    Driver(core, brings=False)
    tell = ((core.lazy, 8, 7), None)
    await core.post(2, send_wqe(rnic.WRITE, 1, (), (core.sink, SINK), inline=b"data", tell=tell))
    assert (await core.completion(2, 20_000))[:2] == (1, 4)
    core = await lazy_again(core)
    await core.post(2, send_wqe(rnic.WRITE, 2, [sge(0, core.lazy, 16)], (core.sink, SINK)))
    assert (await core.completion(2, 20_000))[:2] == (2, 4)
    cover("missed: not brought")


async def lazy_again(core):
    """Both QPs anew."""
    for number in (2, 3):
        assert await core.go(number, rnic.RESET)
        core.posted[number] = core.filled[number] = 0
        for state in (rnic.INIT, rnic.RTR):
            assert await core.go(number, state)
    for number in (2, 3):
        assert await core.go(number, rnic.RTS)
    return core


@cocotb.test()
async def a_flag_waits_for_its_page(dut):
    core = await lazy(dut)
    driver = Driver(core)
    tell = ((core.lazy, 8, 0x77), None)
    await core.post(2, send_wqe(rnic.WRITE, 1, (), (core.sink, SINK), inline=b"data", tell=tell))
    assert (await core.completion(2, 20_000))[:2] == (1, 0)
    assert driver.served == [0] and lies(core, 8, 8) == (0x77).to_bytes(8, "little")
    cover("missed: flag")

"""es_peb_dc between a host, a device and memory: what was written is read, in order, by either; Completions are cut as PCI Express says; all else is refused."""

import random

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId

from axis import Source, start
from dc import DcMemory
from peb import config, memory
from wire import beats

ROOT, DEVICE, BUFFER = PcieId(0, 0, 0), PcieId(3, 0, 0), PcieId(4, 0, 0)
BAR = 0x12_3456_0000
BITS = 14
BYTES = 1 << BITS
LOADS = [(0, 0), (40, 40)]


def header(packet):
    return int.from_bytes(packet[:16].ljust(16, b"\0"), "big")


class Side:
    """The host, or the device: sends TLPs, and takes Completions."""

    def __init__(self, dut, name, requester, load, seed):
        self.dut, self.name, self.requester = dut, name, requester
        self.random, self.pause, self.hold = random.Random(seed), load[1], False
        self.heads = Source(dut, f"s_{name}_", load[0], seed=seed)
        self.source = Source(dut, f"s_{name}_t", load[0], seed=seed + 1)
        self.tags, self.entries, self.payload = 0, {}, 128
        self.now, self.left = b"", 0
        cocotb.start_soon(self.run())

    def pin(self, name):
        return getattr(self.dut, f"m_{self.name}_{name}")

    def send(self, tlp):
        """A TLP; gives where the Completions of a Non-Posted one will be."""
        tlp.requester_id = self.requester
        entry = {"tlp": tlp, "got": [], "data": b"", "done": False}
        if tlp.is_nonposted():
            while self.tags in self.entries:
                self.tags = (self.tags + 1) % 256
            tlp.tag = self.tags
            self.entries[tlp.tag] = entry
        packet = bytes(tlp.pack())
        self.heads.queue.append({"tlp": header(packet)})
        self.source.queue.extend(beats(packet, len(self.dut.m_axis_tdata)))
        return entry

    async def run(self):
        width = len(self.dut.m_axis_tdata) // 8
        while True:
            await FallingEdge(self.dut.clk)
            self.pin("ready").value = int(not self.hold and not self.left and self.random.randrange(100) >= self.pause)
            self.pin("tready").value = int(self.left > 0 and self.random.randrange(100) >= self.pause)
            await RisingEdge(self.dut.clk)
            if self.dut.rst.value:
                continue
            if self.pin("valid").value and self.pin("ready").value:
                assert not self.left
                self.left = int(self.dut.m_hdr_bytes.value)
            if self.pin("tvalid").value and self.pin("tready").value:
                count = min(width, self.left)
                self.now += int(self.dut.m_axis_tdata.value).to_bytes(width, "little")[:count]
                self.left -= count
                assert bool(self.dut.m_axis_tlast.value) == (self.left == 0)
                assert int(self.dut.m_axis_tkeep.value) == (1 << count) - 1
                if not self.left:
                    packet, self.now = self.now, b""
                    self.take(packet)

    def take(self, packet):
        got = Tlp.unpack(packet)
        assert got.is_completion() and got.requester_id == self.requester and got.completer_id == BUFFER
        assert bytes(got.pack()) == packet
        entry = self.entries[got.tag]
        tlp = entry["tlp"]
        entry["got"].append(got)
        if tlp.fmt_type not in (TlpType.MEM_READ, TlpType.MEM_READ_64) or got.status != CplStatus.SC:
            entry["data"] += bytes(got.data)
            del self.entries[got.tag]
            entry["done"] = True
            return
        at, total = tlp.address + (tlp.get_first_be_offset() if tlp.first_be else 0), tlp.get_be_byte_count()
        at += total - entry_left(entry)
        assert got.byte_count % 4096 == entry_left(entry) % 4096 and got.lower_address == at & 0x7F
        carried = min(got.length * 4 - at % 4, entry_left(entry))
        assert len(got.data) == got.length * 4 <= self.payload
        entry["data"] += bytes(got.data[at % 4 : at % 4 + carried])
        if entry_left(entry):
            assert (at + carried) % 128 == 0
        else:
            assert got.length == (at % 4 + carried + 3) // 4
            del self.entries[got.tag]
            entry["done"] = True

    async def ask(self, tlp):
        entry = self.send(tlp)
        await until(self.dut, lambda: entry["done"], repr(tlp))
        return entry

    async def config_write(self, register, value, enables=0xF):
        entry = await self.ask(config(BUFFER, register, value, enables))
        assert entry["got"][0].status == CplStatus.SC and not entry["data"]

    async def config_read(self, register):
        entry = await self.ask(config(BUFFER, register))
        assert entry["got"][0].status == CplStatus.SC
        return int.from_bytes(entry["data"], "little")


def entry_left(entry):
    return entry["tlp"].get_be_byte_count() - len(entry["data"])


async def until(dut, is_so, what, clocks=60_000):
    for _ in range(clocks):
        if is_so():
            return
        await RisingEdge(dut.clk)
    raise AssertionError(f"never {what}")


async def settle(dut, clocks=300):
    for _ in range(clocks):
        await RisingEdge(dut.clk)


async def bench(dut, load=(0, 0)):
    host, device = Side(dut, "host", ROOT, load, 11), Side(dut, "device", DEVICE, load, 13)
    dut.reset.value, dut.host_lost.value, dut.device_lost.value, dut.device_room.value = 0, 0, 0, 1
    dut.id.value, dut.address.value = int(BUFFER), 0
    behind = DcMemory(dut, pause=load[1])
    await start(dut)
    return host, device, behind


async def ready(dut, load=(0, 0)):
    host, device, behind = await bench(dut, load)
    await host.config_write(0x10, BAR & 0xFFFFFFFF)
    await host.config_write(0x14, BAR >> 32)
    await host.config_write(0x04, 2)
    return host, device, behind


@cocotb.test()
@cocotb.parametrize(load=LOADS)
async def its_configuration_space_is_that_of_a_buffer(dut, load):
    host, _, _ = await bench(dut, load)
    assert await host.config_read(0) == 0x0005_E510
    assert await host.config_read(8) == 0x0580_0001
    assert await host.config_read(0xC) >> 16 == 0
    assert await host.config_read(0x2C) == 0x0005_E510
    at, found = await host.config_read(0x34), []
    while at:
        head = await host.config_read(at)
        found.append(head & 0xFF)
        at = head >> 8 & 0xFF
    assert found == [1, 0x10]
    # The BAR: its size, and that others are none.
    for register in range(0x10, 0x28, 4):
        await host.config_write(register, 0xFFFFFFFF)
    assert [await host.config_read(register) for register in range(0x10, 0x28, 4)] == [0x1_0000_0000 - BYTES | 0xC, 0xFFFFFFFF, 0, 0, 0, 0]
    await host.config_write(0x14, 0x11223344, 0x5)
    assert await host.config_read(0x14) == 0xFF22FF44


def some(pick, low, high):
    """An access of a size and place that tells cases apart, within a page."""
    length = pick.choice([1, 2, 3, 4, 5, 8, 64, 65, 127, 128, 129, 256, 511, 512, 1000, 4096])
    at = pick.randrange(low, high - length)
    if pick.random() < 0.5:
        at &= ~127
    return at, min(length, 4096 - at % 4096)


@cocotb.test()
@cocotb.parametrize(load=LOADS, code=[0, 1, 2])
async def what_is_written_is_read_by_both_in_order(dut, load, code):
    host, device, behind = await ready(dut, load)
    await host.config_write(0x88, 0x2910 | code << 5)
    host.payload = device.payload = 128 << code
    pick, mirror, reads = random.Random(71 + code), bytearray(behind.content), []
    for turn in range(160):
        # Each in a half of its own, where nothing of the other comes between.
        side = pick.choice([host, device])
        low = 0 if side is host else BYTES // 2
        at, length = some(pick, low, low + BYTES // 2)
        if pick.random() < 0.5:
            data = pick.randbytes(length)
            side.send(memory(BAR + at, data=data))
            mirror[at : at + length] = data
        else:
            reads.append((side.send(memory(BAR + at, length)), bytes(mirror[at : at + length])))
        if turn % 16 == 0:
            await until(dut, lambda: len(host.heads.queue) + len(device.heads.queue) < 20, "room")
    await until(dut, lambda: all(entry["done"] for entry, _ in reads), "all reads")
    assert all(entry["data"] == wanted for entry, wanted in reads)
    await until(dut, lambda: not (host.source.queue or device.source.queue or dut.host_busy.value or dut.device_busy.value), "idle")
    # What one has written the other reads.
    for side, at in ((host, BYTES // 2), (device, 0)):
        entry = await side.ask(memory(BAR + at + 0x1000, 4096))
        assert entry["data"] == mirror[at + 0x1000 : at + 0x2000]
    assert behind.content == mirror and not int(dut.stat_refused.value)
    assert behind.most <= 64


@cocotb.test()
@cocotb.parametrize(load=LOADS)
async def byte_enables_choose_bytes(dut, load):
    host, device, behind = await ready(dut, load)
    pick, mirror = random.Random(73), bytearray(behind.content)
    for turn in range(120):
        length = pick.choice([1, 1, 2, 2, 3, 17, 40])
        at = 4 * pick.randrange(0x700)
        first = pick.randrange(16) if length == 1 else pick.choice([0xF, 0xE, 0xC, 0x8])
        last = 0 if length == 1 else pick.choice([0xF, 0x7, 0x3, 0x1])
        if length == 2 and at % 8 == 0:
            first, last = pick.randrange(1, 16), pick.randrange(1, 16)
        at -= 4 * length if at % 4096 + 4 * length > 4096 else 0
        tlp = memory(BAR + at, data=pick.randbytes(4 * length))
        tlp.first_be, tlp.last_be = first, last
        (device if turn % 2 else host).send(tlp)
        for i in range(4 * length):
            enables = first if i < 4 else last if i >= 4 * length - 4 else 0xF
            if enables >> i % 4 & 1:
                mirror[at + i] = tlp.data[i]
        got = await (device if turn % 2 else host).ask(memory(BAR + at, 4 * length))
        assert got["data"] == mirror[at : at + 4 * length]
    # A read of nothing is answered all the same.
    tlp = memory(BAR + 0x104, 4)
    tlp.first_be = 0
    got = await device.ask(tlp)
    assert len(got["data"]) == 1
    assert behind.content == mirror


@cocotb.test()
async def what_is_not_its_is_refused(dut):
    host, device, behind = await ready(dut)
    before, count = bytes(behind.content), 0

    async def refused(side, tlp):
        nonlocal count
        count += 1
        if tlp.is_nonposted():
            got = (await side.ask(tlp))["got"]
            assert len(got) == 1 and got[0].status == CplStatus.UR, got
        else:
            side.send(tlp)
        await until(dut, lambda: int(dut.stat_refused.value) == count, repr(tlp))

    async def all_refused():
        for side in (host, device):
            for address in (BAR, BAR + BYTES - 4):
                await refused(side, memory(address, 4))
                await refused(side, memory(address, data=b"none"))

    for side in (host, device):
        for address in (BAR - 4, BAR + BYTES, BAR + (1 << 32), BAR & 0xFFFFFFFF):
            await refused(side, memory(address, 4))
            await refused(side, memory(address, data=b"none"))
        atomic = memory(BAR, data=b"more")
        atomic.fmt_type = TlpType.FETCH_ADD_64
        await refused(side, atomic)
        poisoned = memory(BAR, data=b"none")
        poisoned.ep = True
        await refused(side, poisoned)
    await refused(device, config(BUFFER, 0))
    poisoned = config(BUFFER, 4, 0)
    poisoned.ep = True
    await refused(host, poisoned)
    # Memory Space Enable, and another power state than D0.
    for register, off, on in ((0x04, 4, 2), (0x44, 3, 0)):
        await host.config_write(register, off)
        await all_refused()
        await host.config_write(register, on)
    assert behind.content == before
    assert (await device.ask(memory(BAR + BYTES - 4, 4)))["data"] == before[-4:]
    assert int(dut.stat_host.value) == 0 and int(dut.stat_device.value) == 1


@cocotb.test()
async def an_address_is_its_own_or_not(dut):
    host, _, _ = await ready(dut)
    for address, wanted in ((BAR, 1), (BAR + BYTES - 1, 1), (BAR - 1, 0), (BAR + BYTES, 0), (BAR + (1 << 40), 0), (BAR & 0xFFFFFFFF, 0)):
        await FallingEdge(dut.clk)
        dut.address.value = address
        await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        assert int(dut.hit.value) == wanted, hex(address)
    dut.address.value = BAR
    await host.config_write(4, 0)
    await settle(dut, 3)
    assert not dut.hit.value


@cocotb.test()
@cocotb.parametrize(load=LOADS)
async def a_reset_leaves_zeros_and_no_address(dut, load):
    host, device, behind = await ready(dut, load)
    for at in range(0, 4096, 256):
        host.send(memory(BAR + at, data=bytes([1] * 256)))
        device.send(memory(BAR + 4096 + at, data=bytes([2] * 256)))
    await settle(dut, 100)
    await FallingEdge(dut.clk)
    dut.reset.value = 1
    # The device may go on asking: it is refused, also while memory is made zero.
    entry = device.send(memory(BAR, 4))
    await until(dut, lambda: entry["done"], "refused")
    assert entry["got"][0].status == CplStatus.UR
    await until(dut, lambda: dut.reset_done.value, "reset")
    assert behind.content == bytes(BYTES)
    await FallingEdge(dut.clk)
    dut.reset.value = 0
    await settle(dut, 3)
    assert not dut.reset_done.value
    assert await host.config_read(4) & 0xFFFF == 0 and await host.config_read(0x14) == 0
    await host.config_write(0x14, BAR >> 32)
    await host.config_write(0x10, BAR & 0xFFFFFFFF)
    await host.config_write(0x04, 2)
    assert (await host.ask(memory(BAR + 0x100, 64)))["data"] == bytes(64)


@cocotb.test()
@cocotb.parametrize(load=LOADS, lost=["host", "device"])
async def answers_to_who_is_gone_are_dropped(dut, load, lost):
    host, device, behind = await ready(dut, load)
    gone, stays = (host, device) if lost == "host" else (device, host)
    flag, busy = getattr(dut, f"{lost}_lost"), getattr(dut, f"{lost}_busy")
    gone.hold = True
    reads = [gone.send(memory(BAR + 4096 * turn, 4096)) for turn in range(6)]
    others = [stays.send(memory(BAR + 64 * turn, 64)) for turn in range(6)]
    await settle(dut, 200)
    assert busy.value
    await FallingEdge(dut.clk)
    flag.value = 1
    await until(dut, lambda: not busy.value and all(other["done"] for other in others), "over")
    assert not any(read["got"] for read in reads) and not gone.entries.keys() - {read["tlp"].tag for read in reads}
    await FallingEdge(dut.clk)
    flag.value, gone.hold = 0, False
    gone.entries.clear()
    assert (await gone.ask(memory(BAR, 4096)))["data"] == behind.content[:4096]


@cocotb.test()
async def completions_wait_for_room_at_the_device_alone(dut):
    _, device, behind = await ready(dut)
    dut.device_room.value = 0
    entry = device.send(memory(BAR, 1024))
    await settle(dut)
    assert not entry["got"]
    dut.device_room.value = 1
    await until(dut, lambda: entry["done"], "read")
    assert entry["data"] == behind.content[:1024]

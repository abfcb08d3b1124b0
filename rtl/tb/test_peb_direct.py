"""es_peb with a DC buffer: the host has the device and the buffer, each by its name, and what the device asks of the buffer stays in the box."""

import random

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId

import peb
from axis import start
from dc import DcMemory
from peb import ATTACHED, CONTROL, DETACH, DETACHED, FUNCTION, HOT_RESET, HOT_RESET_DONE, PORT, TLP, UPSTREAM, Host, Slot, attach, config, memory

DISK, DC = 1, 2  # streams
DC_NAME, DC_PORT, BUFFER = "between", PcieId(2, 1, 0), PcieId(4, 0, 0)
BAR, DC_BAR = 0xA000_0000, 0x34_5660_0000
BYTES = 1 << 14
DOMAIN, LOADS = 12, [(0, 0), (40, 40)]


class TwoHost(Host):
    """A host with two Functions, each on a stream of its own."""

    async def write_config(self, stream, target, register, value, enables=0xF):
        got, = await self.ask(config(target, register, value, enables), stream)
        assert got.status == CplStatus.SC and got.completer_id == target, got

    async def read_config(self, stream, target, register):
        got, = await self.ask(config(target, register), stream)
        assert got.status == CplStatus.SC and got.completer_id == target, got
        return int.from_bytes(got.data, "little")

    async def attach_dc(self, stream=DC):
        """Again and again as long as it is made zero for its next host; gives how often it was busy."""
        for busy in range(200):
            self.send(CONTROL, 0, attach(stream, name=DC_NAME))
            await self.until(lambda: self.control, "answered")
            if self.control[0] != (0, bytes([ATTACHED, 2, 0, stream, 0, 0, 0, 0])):
                await self.told(0, bytes([ATTACHED, 0, 0, stream, 2, 8, 0, 0]))
                return busy
            self.control.pop(0)
        raise AssertionError("busy for ever")

    async def bring_up_dc(self, payload=0):
        for register, value in (
            (0x18, 0xFF0201), (0x04, 6), (0x20, 0xFFF00000), (0x24, 0xFFF10001), (0x28, 1), (0x2C, 0xFFFFFFFF),
        ):
            await self.write_config(DC, UPSTREAM, register, value)
        await self.write_config(DC, DC_PORT, 0x18, 0x040402)
        await self.write_config(DC, DC_PORT, 0x04, 6)
        await self.write_config(DC, BUFFER, 0x3C, 0xFF)
        await self.write_config(DC, BUFFER, 0x10, DC_BAR & 0xFFFFFFFF)
        await self.write_config(DC, BUFFER, 0x14, DC_BAR >> 32)
        await self.write_config(DC, BUFFER, 0x88, 0x2910 | payload << 5)
        await self.write_config(DC, BUFFER, 0x04, 6)
        low = DC_BAR >> 16 & 0xFFF0
        for register, value in ((0x24, low | low << 16), (0x28, DC_BAR >> 32), (0x2C, DC_BAR >> 32)):
            await self.write_config(DC, DC_PORT, register, value)

    def join(self, stream, domain):
        self.send(CONTROL, stream, bytes([DOMAIN, 0]) + domain.to_bytes(2, "big"))

    async def read(self, at, length):
        got = await self.ask(memory(DC_BAR + at, length), DC)
        assert all(one.status == CplStatus.SC and one.completer_id == BUFFER for one in got)
        return b"".join(bytes(one.data)[one.lower_address & 3 :] for one in got)[:length]


async def put(link, at, data):
    """The device writes into the buffer, and has read it back."""
    await link.endpoint.mem_write(DC_BAR + at, data)
    assert await link.endpoint.mem_read(DC_BAR + at, len(data)) == data


def stat(dut, name):
    return int(getattr(dut, f"stat_{name}").value)


async def settle(dut, clocks=400):
    for _ in range(clocks):
        await RisingEdge(dut.clk)


async def bench(dut, load=(0, 0), body_bytes=peb.BODY):
    dut.dc_name.value = int.from_bytes(DC_NAME.encode().ljust(32, b"\0"), "big")
    host, link, behind = TwoHost(dut, load, 5, body_bytes), Slot(dut, load), DcMemory(dut, pause=load[1], prefix="m_dc_mem_", back="s_dc_mem_")
    await start(dut)
    return host, link, behind


async def ready(dut, load=(0, 0), payload=0, domain=7, **options):
    """A host that has both, in one domain."""
    host, link, behind = await bench(dut, load, **options)
    await host.begin()
    await host.attach(DISK)
    await host.bring_up()
    await host.attach_dc()
    if domain:
        host.join(DISK, domain)
        host.join(DC, domain)
    await host.bring_up_dc(payload)
    return host, link, behind


async def refused(host, link, tlp):
    """A Request of the device that ends with UR."""
    before = len(link.went)
    link.raw(bytes(tlp.pack()))
    await host.until(lambda: len(link.went) > before, "refused")
    got = Tlp.unpack(link.went[-1])
    assert got.is_completion() and got.status == CplStatus.UR and got.tag == tlp.tag, got
    return got


@cocotb.test()
@cocotb.parametrize(load=LOADS)
async def a_host_sees_two_devices_below_one_switch(dut, load):
    host, link, _ = await ready(dut, load)
    for stream in (DISK, DC):
        assert await host.read_config(stream, UPSTREAM, 0) == 0x0001E75E
        assert await host.read_config(stream, UPSTREAM, 0x18) == 0xFF0201
    assert await host.read_config(DISK, PORT, 0x18) == 0x030302 and await host.read_config(DC, DC_PORT, 0x18) == 0x040402
    assert await host.read_config(DC, DC_PORT, 0x8C) >> 24 == 1 and await host.read_config(DC, DC_PORT, 0x94) >> 19 == 1
    assert await host.read_config(DISK, FUNCTION, 0) & 0xFFFF == link.endpoint.vendor_id
    assert await host.read_config(DC, BUFFER, 0) == 0x0005E510
    # The Upstream Port is one, whichever stream it is written on, also at the same time.
    for turn in range(20):
        one, two = host.request(config(UPSTREAM, 0x0C, turn), DISK, end=False), host.request(config(UPSTREAM, 0x3C, turn << 16 & 0x30000), DC)
        await host.until(lambda: one["done"] and two["done"], "written")
        for stream in (DISK, DC):
            assert await host.read_config(stream, UPSTREAM, 0x0C) & 0xFF == turn
            assert await host.read_config(stream, UPSTREAM, 0x3C) >> 16 & 3 == turn & 3
    await host.write_config(DISK, UPSTREAM, 0x3C, 0)
    # A stream leads to its own Function and port alone.
    for stream, target in ((DISK, BUFFER), (DISK, DC_PORT), (DC, FUNCTION), (DC, PORT)):
        got, = await host.ask(config(target, 0), stream)
        assert got.status == CplStatus.UR
    for stream, address in ((DISK, DC_BAR), (DC, BAR)):
        got, = await host.ask(memory(address, 4), stream)
        assert got.status == CplStatus.UR
    assert stat(dut, "dc_host") == 0 and stat(dut, "stray") == 0 and not dut.broken.value


@cocotb.test()
@cocotb.parametrize(load=LOADS, payload=[0, 2])
async def the_device_and_the_host_meet_in_the_buffer(dut, load, payload):
    host, link, behind = await ready(dut, load, payload)
    pick, endpoint, done = random.Random(81 + payload), link.endpoint, []
    mirror, far = bytearray(BYTES), bytearray(host.memory)
    assert behind.content == mirror, "what is in memory at first is not seen"

    async def device():
        """Its half is the upper one; between, it writes and reads the host's memory."""
        for turn in range(30):
            length = pick.choice([1, 3, 4, 64, 127, 128, 500, 2000])
            at = BYTES // 2 + pick.randrange(0, BYTES // 2 - length)
            data = pick.randbytes(length)
            await endpoint.mem_write(DC_BAR + at, data)
            mirror[at : at + length] = data
            if turn % 3 == 0:
                place = pick.randrange(0, 1 << 15)
                await endpoint.mem_write(host.MEMORY + place, data)
                far[place : place + length] = data
                if turn % 2:
                    assert await endpoint.mem_read(host.MEMORY + place, length) == data
            if turn % 2:
                assert await endpoint.mem_read(DC_BAR + at, length) == data
        done.append(True)

    cocotb.start_soon(device())
    for turn in range(30):
        length = pick.choice([1, 2, 4, 7, 64, 128, 512, 2048])
        at = pick.randrange(0, BYTES // 2 - length)
        length = min(length, 4096 - at % 4096)
        data = pick.randbytes(length)
        host.request(memory(DC_BAR + at, data=data), DC, end=pick.random() < 0.5)
        mirror[at : at + length] = data
        assert await host.read(at, length) == data
        # Beside it, the device's own memory.
        host.request(memory(BAR + 64 * turn, data=bytes([turn] * 64)), DISK)
        got, = await host.ask(memory(BAR + 64 * turn, 64), DISK)
        assert bytes(got.data) == bytes([turn] * 64)
    await host.until(lambda: done, "the device is done", clocks=120_000)
    for at in range(0, BYTES, 4096):
        assert await host.read(at, 4096) == mirror[at : at + 4096]
        data = b"".join([await endpoint.mem_read(DC_BAR + at + part, 512) for part in range(0, 4096, 512)])
        assert data == mirror[at : at + 4096]
    await settle(dut)
    assert behind.content == mirror and host.memory == far
    assert not host.strange and not host.wrong
    # None of it went to the host: all that came there was for its memory.
    assert all(0 <= Tlp.unpack(packet).address - host.MEMORY < len(host.memory) for packet in host.requests)
    assert stat(dut, "dc_device") > 60 and stat(dut, "dc_host") >= 64
    for name in ("dc_refused", "down_malformed", "down_spoofed", "down_unrouted", "down_unrouted_completions", "up_malformed", "up_spoofed", "up_refused", "stray"):
        assert stat(dut, name) == 0, name


@cocotb.test()
async def what_the_device_tells_the_host_comes_behind_what_it_wrote_into_the_buffer(dut):
    host, link, behind = await ready(dut, (0, 40))
    for turn in range(30):
        data = bytes([turn + 1]) * 512
        link.raw(bytes(memory(DC_BAR, data=data, requester=FUNCTION).pack()))
        link.raw(bytes(memory(host.MEMORY, data=bytes([turn + 1]) * 4, requester=FUNCTION).pack()))
        await host.until(lambda: host.memory[0] == turn + 1, "told")
        assert await host.read(0, 512) == data


@cocotb.test()
async def only_what_the_buffer_decodes_in_one_domain_stays_in_the_box(dut):
    host, link, behind = await ready(dut, domain=0)
    ours = {"requester": FUNCTION}

    async def goes_to_the_host():
        seen = len(host.requests)
        link.raw(bytes(memory(DC_BAR + 64, data=b"to the host", **ours).pack()))
        await host.until(lambda: len(host.requests) == seen + 1, "at the host")

    async def stays():
        seen, served = len(host.requests), stat(dut, "dc_device")
        link.raw(bytes(memory(DC_BAR + 64, data=b"in the box.", **ours).pack()))
        await host.until(lambda: stat(dut, "dc_device") == served + 1, "served")
        assert len(host.requests) == seen

    await goes_to_the_host()
    host.join(DISK, 5)
    await settle(dut, 60)
    await goes_to_the_host()
    host.join(DC, 6)
    await settle(dut, 60)
    await goes_to_the_host()
    host.join(DC, 5)
    await settle(dut, 60)
    await stays()
    # Memory Space Enable and D0, of the buffer.
    for register, off, on in ((0x04, 4, 6), (0x44, 3, 0)):
        await host.write_config(DC, BUFFER, register, off)
        await goes_to_the_host()
        await host.write_config(DC, BUFFER, register, on)
        await stays()
    # In the port's window, and beside the BAR.
    seen = len(host.requests)
    link.raw(bytes(memory(DC_BAR + BYTES, data=b"beside", **ours).pack()))
    await host.until(lambda: len(host.requests) == seen + 1, "at the host")
    # A port above the buffer that does not lead there, or one above the device that may not.
    for port, stream, off in ((DC_PORT, DC, 4), (PORT, DISK, 2)):
        await host.write_config(stream, port, 0x04, off)
        await refused(host, link, memory(DC_BAR, 4, **ours))
        await host.write_config(stream, port, 0x04, 6)
    # What is no memory access.
    atomic = memory(DC_BAR, data=b"more", **ours)
    atomic.fmt_type = TlpType.FETCH_ADD_64
    await refused(host, link, atomic)
    # Of the buffer's Function itself, or of anybody else.
    await refused(host, link, memory(DC_BAR, 4, requester=BUFFER))
    served = stat(dut, "dc_device")
    poisoned = memory(DC_BAR, data=b"none", **ours)
    poisoned.ep = True
    link.raw(bytes(poisoned.pack()))
    await host.until(lambda: stat(dut, "dc_refused") == 1, "dropped")
    assert stat(dut, "dc_device") == served and bytes(behind.content[64:75]) == b"in the box."
    # Bus Master Enable of the Upstream Port is about the host alone.
    await host.write_config(DISK, UPSTREAM, 0x04, 2)
    await stays()
    await refused(host, link, memory(host.MEMORY, 4, **ours))
    await host.write_config(DISK, UPSTREAM, 0x04, 6)
    host.join(DISK, 0)
    await settle(dut, 60)
    await goes_to_the_host()


@cocotb.test()
async def each_is_attached_by_its_name_and_in_no_domain(dut):
    host, link, behind = await bench(dut)
    await host.begin()

    async def asked(stream, status, **fields):
        host.send(CONTROL, 0, attach(stream, **fields))
        await host.told(0, bytes([ATTACHED, status]) + stream.to_bytes(2, "big") + bytes(4))

    await asked(1, 1, name="neither")
    # Whatever is in memory at first is made zero first; meanwhile the other one can be had.
    await asked(DC, 2, name=DC_NAME)
    await host.attach(DISK)
    host.send(CONTROL, DISK, bytes([DETACH, 0, 0, 0]))
    await host.told(DISK, bytes([DETACHED, 0, 0, 0]))
    busy = 1 + await host.attach_dc()
    assert behind.content == bytes(BYTES)
    await asked(3, 2, name=DC_NAME)
    await asked(DC, 3)
    await host.attach(DISK)
    await asked(DISK, 3, name=DC_NAME)
    await asked(16, 3, name=DC_NAME)
    await asked(3, 2)
    assert (stat(dut, "attached"), stat(dut, "denied")) == (3, 6 + busy)
    await host.bring_up()
    await host.bring_up_dc()
    host.join(DC, 3)
    host.join(DISK, 3)
    await settle(dut, 60)
    assert await link.endpoint.mem_read(DC_BAR, 16) == bytes(16)
    # Given back and taken again: zeros, and no domain.
    resets = link.resets
    await put(link, 0x100, b"of this host")
    assert await host.read(0x100, 12) == b"of this host"
    host.send(CONTROL, DC, bytes([DETACH, 0, 0, 0]))
    await host.told(DC, bytes([DETACHED, 0, 0, 0]))
    assert not dut.dc_attached.value and dut.attached.value and link.resets == resets
    assert behind.content == bytes(BYTES)
    await host.attach_dc()
    await host.bring_up_dc()
    seen = len(host.requests)
    await link.endpoint.mem_write(DC_BAR, b"not there")
    await host.until(lambda: len(host.requests) == seen + 1, "at the host")
    assert await host.read(0x100, 12) == bytes(12)
    for message in (bytes([9, 0, 0, 7]), bytes([13, 0, 0, 7])):
        host.send(CONTROL, DC, message)
    host.send(CONTROL, 0, bytes([9, 0, 0, 7]))
    await host.until(lambda: stat(dut, "unknown") == 3, "counted")


@cocotb.test()
@cocotb.parametrize(load=LOADS)
async def a_reset_of_one_does_not_touch_the_other(dut, load):
    host, link, behind = await ready(dut, load)
    await put(link, 0, b"kept")
    assert await host.read(0, 4) == b"kept"
    for turn in range(4):
        # Of the device, while it reads the buffer and takes nothing.
        link.hold = 4
        tags = []
        for at in range(8):
            read = memory(DC_BAR + 512 * at, 512, requester=FUNCTION)
            read.tag = 128 + at
            tags.append(read.tag)
            link.raw(bytes(read.pack()))
        await settle(dut, 60 * turn)
        host.send(CONTROL, DISK, bytes([HOT_RESET, 0, 0, 0]))
        await host.told(DISK, bytes([HOT_RESET_DONE, 0, 0, 0]))
        before, link.hold = len(link.went), 0
        await settle(dut)
        assert len(link.went) == before, "nothing from before follows the reset"
        assert await host.read(0, 4) == b"kept"
        await host.bring_up()
        assert await link.endpoint.mem_read(DC_BAR, 4) == b"kept"
    for turn in range(4):
        # Of the buffer, while both read it.
        reads = [host.request(memory(DC_BAR + 64 * at, 64), DC, end=False) for at in range(8)]
        host.flush()
        await settle(dut, 25 * turn)
        resets = link.resets
        host.send(CONTROL, DC, bytes([HOT_RESET, 0, 0, 0]))
        await host.told(DC, bytes([HOT_RESET_DONE, 0, 0, 0]))
        done = sum(read["done"] for read in reads)
        await settle(dut)
        assert link.resets == resets and sum(read["done"] for read in reads) == done
        host.waiting.clear()
        got, = await host.ask(memory(BAR, 4), DISK)
        assert got.status == CplStatus.SC
        await host.bring_up_dc()
        assert await link.endpoint.mem_read(DC_BAR, 4) == bytes(4)
        await put(link, 0, b"kept")


@cocotb.test()
async def a_session_that_ends_in_the_middle_leaves_nothing_to_the_next(dut):
    host, link, behind = await ready(dut)
    for turn in range(6):
        link.hold = 4 if turn % 2 else 0
        for at in range(6):
            host.request(memory(DC_BAR + 1024 * at, 1024), DC, end=False)
            host.request(memory(DC_BAR + 64 * at, data=bytes([turn + 1] * 64)), DC, end=False)
            link.raw(bytes(memory(DC_BAR + 4096 + 256 * at, data=bytes([turn + 1] * 256), requester=FUNCTION).pack()))
            link.raw(bytes(memory(DC_BAR + 512 * at, 512, requester=FUNCTION).pack()))
        host.flush()
        await settle(dut, 40 * turn + 1)
        await host.end()
        await settle(dut, 5)
        link.hold = 0
        await settle(dut, 50 * turn)
        await host.begin()
        host.waiting.clear()
        went = len(link.went)
        await host.attach_dc()
        await host.attach(DISK)
        assert len(link.went) == went and not host.requests
        assert behind.content == bytes(BYTES)
        await host.bring_up()
        await host.bring_up_dc()
        host.join(DC, 4)
        host.join(DISK, 4)
        await settle(dut, 60)
        assert await link.endpoint.mem_read(DC_BAR + 4096, 256) == bytes(256)
        assert await host.read(0, 64) == bytes(64)
        assert not host.wrong


@cocotb.test()
async def a_port_that_holds_the_buffer_in_reset_clears_it(dut):
    host, link, behind = await ready(dut)
    for turn in range(3):
        await put(link, 64, bytes([turn + 1] * 64))
        assert await host.read(64, 4) == bytes([turn + 1] * 4)
        await host.write_config(DC, DC_PORT, 0x3C, 0x400000)
        got, = await host.ask(config(BUFFER, 0), DC)
        assert got.status == CplStatus.UR
        await host.write_config(DC, DC_PORT, 0x3C, 0)
        # It is there again when all of it is zero.
        while got.status == CplStatus.UR:
            got, = await host.ask(config(BUFFER, 0), DC)
        assert behind.content == bytes(BYTES)
        await host.bring_up_dc()
        assert await link.endpoint.mem_read(DC_BAR + 64, 64) == bytes(64)

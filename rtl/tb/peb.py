"""What is around the bridge: a host that speaks docs/wire.md, and Links with credits to models of cocotbext-pcie."""

import random

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.pcie.core import Device, MemoryEndpoint
from cocotbext.pcie.core.dllp import FcType
from cocotbext.pcie.core.port import SimPort
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId

from axis import Sink, Source, start
from coverage_peb import cover, cover_counters, cover_tlp
from wire import beats, packets

NAME = "disk"
HOST_NODE = 0x0102030405060708090A0B0C0D0E0F10
TLP, CONTROL = 1, 2
ATTACH, ATTACHED, DETACH, DETACHED, HOT_RESET, HOT_RESET_DONE = range(1, 7)
UPSTREAM, PORT, FUNCTION = PcieId(1, 0, 0), PcieId(2, 0, 0), PcieId(3, 0, 0)
BODY = 1404


def record(kind, stream, place, payload, first=True, last=True):
    head = len(payload).to_bytes(2, "big") + bytes([kind, int(first) | int(last) << 1]) + stream.to_bytes(2, "big") + place.to_bytes(2, "big")
    return head + payload + bytes(-len(payload) % 4)


def attach(stream, name=NAME, payload=512, read=1024):
    return bytes([ATTACH, 0]) + b"".join(value.to_bytes(2, "big") for value in (stream, payload, read)) + name.encode().ljust(32, b"\0")


class Host:
    """Puts records into bodies, at random one or more, whole or split; takes those that come, in the order of their streams."""

    def __init__(self, dut, load=(0, 0), seed=5, body_bytes=BODY):
        self.dut, self.random, self.body_bytes = dut, random.Random(seed), body_bytes
        self.source = Source(dut, "s_axis_t", load[0], seed=seed)
        self.sink = Sink(dut, "m_axis_t", ["data", "keep", "last"], load[1], seed=seed + 1, alive=dut.up)
        self.width = len(dut.s_axis_tdata)
        self.memory = bytearray(1 << 16)  # from address MEMORY on
        self.forget()
        self.tags = 0
        dut.up.value = 0
        dut.peer.value = HOST_NODE
        dut.peers_write.value = 0
        dut.body_bytes.value = body_bytes
        dut.function_name.value = int.from_bytes(NAME.encode().ljust(32, b"\0"), "big")
        cocotb.start_soon(self.run())

    MEMORY = 0x1_2345_0000

    def forget(self):
        """A session begins."""
        self.places, self.waiting, self.body, self.others, self.partial = {}, {}, b"", {}, {}
        self.control, self.strange, self.requests, self.wrong = [], [], [], []
        self.seen, self.taken = len(self.sink.taken), b""

    def send(self, kind, stream, payload, end=True):
        """A record, at random with others in a body; `end`: the body leaves."""
        left, first = payload, True
        while first or left:
            room = self.body_bytes - len(self.body) - 8
            part = len(left)
            if len(left) > room or (len(left) > 8 and self.random.random() < 0.1 and room > 8):
                part = min(room, self.random.randrange(4, max(8, len(left)), 4)) & ~3
            if room < 4:
                self.flush()
                continue
            place = self.places.get(stream, 0)
            self.places[stream] = place + 1 & 0xFFFF
            if self.body:
                cover("several records in a body to the hardware")
            if kind == TLP and part < len(left):
                cover("a TLP over several bodies to the hardware")
            self.body += record(kind, stream, place, left[:part], first, part == len(left))
            left, first = left[part:], False
            if left:
                self.flush()
        if end or self.random.random() < 0.5:
            self.flush()

    def flush(self):
        if self.body:
            self.source.queue.extend(beats(self.body, self.width))
        self.body = b""

    def raw(self, body):
        """Any bytes as a body."""
        self.flush()
        self.source.queue.extend(beats(body, self.width))

    async def run(self):
        """Takes bodies apart."""
        while True:
            await RisingEdge(self.dut.clk)
            while self.seen < len(self.sink.taken):
                beat = self.sink.taken[self.seen][1]
                self.seen += 1
                self.taken += packets([{**beat, "last": 1}])[0]
                if beat["last"]:
                    body, self.taken = self.taken, b""
                    self.take(body)

    def take(self, body):
        assert len(body) <= self.body_bytes and len(body) % 4 == 0
        records = 0
        while body:
            records += 1
            if records > 1:
                cover("several records in a body of the hardware")
            length, kind, flags = int.from_bytes(body[0:2], "big"), body[2], body[3]
            stream, place = int.from_bytes(body[4:6], "big"), int.from_bytes(body[6:8], "big")
            payload, body = body[8 : 8 + length], body[8 + -(-length // 4) * 4 :]
            assert len(payload) == length and place == self.others.get(stream, 0), (stream, place)
            self.others[stream] = place + 1 & 0xFFFF
            assert bool(flags & 1) == (stream not in self.partial)
            whole = self.partial.pop(stream, b"") + payload
            if not flags & 2:
                assert length % 4 == 0
                cover("a TLP over several bodies of the hardware")
                self.partial[stream] = whole
            elif kind == CONTROL:
                self.control.append((stream, whole))
                if whole[0] == ATTACHED:
                    cover(f"an Attach ends with status {whole[1]}")
                else:
                    cover({DETACHED: "Detached", HOT_RESET_DONE: "HotResetDone"}.get(whole[0], "another message"))
            else:
                assert kind == TLP
                self.tlp(stream, whole)

    def tlp(self, stream, packet):
        cover_tlp(packet, "to the host")
        if packet[0] >> 4 in (3, 7):
            self.requests.append(packet)
            return
        tlp = Tlp.unpack(packet)
        if tlp.is_completion():
            self.complete(tlp)
            return
        self.requests.append(packet)
        if tlp.requester_id != FUNCTION:
            self.wrong.append(packet)
        offset = tlp.address - self.MEMORY
        if not 0 <= offset < len(self.memory):
            self.strange.append(packet)
        elif tlp.has_data():
            offset += tlp.get_first_be_offset()
            start_at = tlp.get_first_be_offset()
            count = tlp.get_be_byte_count()
            self.memory[offset : offset + count] = tlp.data[start_at : start_at + count]
        else:
            self.answer(stream, tlp, offset)

    def answer(self, stream, tlp, offset):
        """Completions of a read, cut where they may be."""
        at, left = tlp.address + tlp.get_first_be_offset(), tlp.get_be_byte_count()
        while left:
            most = self.random.choice([64, 128, 256])
            part = min(left, most - at % 64)
            made = Tlp.create_completion_data_for_tlp(tlp, PcieId(0, 0, 0))
            made.byte_count, made.lower_address = left, at & 0x7F
            first = at & ~3
            end = (at + part + 3) & ~3
            made.set_data(self.memory[first - self.MEMORY : end - self.MEMORY])
            self.send(TLP, stream, bytes(made.pack()), end=False)
            at, left = at + part, left - part
        self.flush()

    def complete(self, tlp):
        if tlp.tag not in self.waiting:
            self.wrong.append(tlp)
            return
        entry = self.waiting[tlp.tag]
        entry["got"].append(tlp)
        cover(f"a Request of the host ends with status {int(tlp.status)}")
        if tlp.status != CplStatus.SC or not tlp.has_data() or tlp.byte_count <= tlp.length * 4 - (tlp.lower_address & 3):
            del self.waiting[tlp.tag]
            entry["done"] = True

    def request(self, tlp, stream=1, end=True):
        """Sends a Request with the next Tag; gives where its Completions will be."""
        self.tags = (self.tags + 1) % 256
        while self.tags in self.waiting:
            self.tags = (self.tags + 1) % 256
        tlp.tag = self.tags
        entry = {"got": [], "done": False}
        if tlp.is_nonposted():
            self.waiting[tlp.tag] = entry
        self.send(TLP, stream, bytes(tlp.pack()), end)
        return entry

    async def until(self, is_so, what="", clocks=30_000):
        for _ in range(clocks):
            if is_so():
                return
            await RisingEdge(self.dut.clk)
        raise AssertionError(f"never {what}; waiting {self.waiting}, control {self.control}")

    async def ask(self, tlp, stream=1):
        entry = self.request(tlp, stream)
        await self.until(lambda: entry["done"], repr(tlp))
        return entry["got"]

    async def told(self, stream, payload):
        """Waits for a control message, the oldest one that was not waited for."""
        await self.until(lambda: self.control, f"{payload.hex()} on stream {stream}")
        assert self.control.pop(0) == (stream, payload)

    async def begin(self):
        self.forget()
        await FallingEdge(self.dut.clk)
        self.dut.up.value = 1

    async def end(self):
        await FallingEdge(self.dut.clk)
        # The beat that is offered is swallowed.
        del self.source.queue[1:]
        self.dut.up.value = 0
        self.body = b""

    async def attach(self, stream=1, **fields):
        self.send(CONTROL, 0, attach(stream, **fields))
        await self.told(0, bytes([ATTACHED, 0, 0, stream, 2, 0, 0, 0]))

    async def allow(self, index, node, valid=1):
        """Writes an entry of the peer table."""
        await FallingEdge(self.dut.clk)
        self.dut.peers_index.value, self.dut.peers_node.value, self.dut.peers_valid.value, self.dut.peers_write.value = index, node, valid, 1
        await FallingEdge(self.dut.clk)
        self.dut.peers_write.value = 0

    async def config_write(self, target, register, value, enables=0xF):
        got, = await self.ask(config(target, register, value, enables))
        assert got.status == CplStatus.SC and not got.has_data() and got.completer_id == target, got
        return got

    async def config_read(self, target, register):
        got, = await self.ask(config(target, register))
        assert got.status == CplStatus.SC and got.length == 1 and got.completer_id == target, got
        return int.from_bytes(got.data, "little")

    async def bring_up(self, bar=0xA000_0000):
        """The steps of a host node (crates/node/src/bring_up.rs), and a BAR."""
        await self.config_write(UPSTREAM, 0x18, 0xFF0201)
        await self.config_write(UPSTREAM, 0x04, 6)
        await self.config_write(UPSTREAM, 0x20, 0xFFF00000)
        for register, value in ((0x24, 0xFFF10001), (0x28, 1), (0x2C, 0xFFFFFFFF)):
            await self.config_write(UPSTREAM, register, value)
        await self.config_write(PORT, 0x18, 0x030302)
        await self.config_write(PORT, 0x04, 6)
        await self.config_write(FUNCTION, 0x3C, 0xFF)
        await self.config_write(FUNCTION, 0x10, bar)
        await self.config_write(FUNCTION, 0x04, 6)
        await self.config_write(PORT, 0x20, (bar >> 16 & 0xFFF0) | (bar & 0xFFF00000))


def config(target, register, value=None, enables=0xF):
    tlp = Tlp()
    kind = "0" if target == UPSTREAM else "1"
    tlp.fmt_type = TlpType[f"CFG_{'READ' if value is None else 'WRITE'}_{kind}"]
    tlp.requester_id, tlp.completer_id = PcieId(0, 0, 0), target
    tlp.address, tlp.length, tlp.first_be = register, 1, enables
    if value is not None:
        tlp.set_data((value & 0xFFFFFFFF).to_bytes(4, "little"))
    return tlp


def memory(address, length=None, data=None, requester=PcieId(0, 0, 0), attr=0):
    tlp = Tlp()
    name = "MEM_READ" if data is None else "MEM_WRITE"
    tlp.fmt_type = TlpType[name + ("_64" if address >> 32 else "")]
    tlp.requester_id, tlp.attr = requester, attr
    if data is None:
        tlp.set_addr_be(address, length)
    else:
        tlp.set_addr_be_data(address, data)
    return tlp


class Link:
    """One Link of the hardware: TLPs of it to a port of cocotbext-pcie as there are credits, and back. `name` is in front of the hardware's signals."""

    def __init__(self, dut, name="", load=(0, 0), seed=9):
        self.dut, self.name, self.random, self.pause = dut, name, random.Random(seed), load[1]
        self.width = len(self.pin("m_tlp_tdata"))
        self.source = Source(dut, f"{name}s_tlp_t", load[0], seed=seed)
        self.now, self.went, self.behind, self.in_reset, self.hold = b"", [], [0, 0, 0], False, 0
        self.port = SimPort(fc_init=[[64, 1024, 64, 64, 64, 1024]] * 8)
        self.port.rx_handler = self.from_port
        self.pin("m_tlp_room").value = 0
        cocotb.start_soon(self.run())

    def pin(self, name):
        return getattr(self.dut, self.name + name)

    def raw(self, packet):
        """Any bytes as a TLP for the hardware."""
        self.source.queue.extend(beats(packet, self.width))

    async def from_port(self, tlp):
        tlp.release_fc()
        if not self.in_reset:
            self.raw(bytes(tlp.pack()))

    async def to_port(self, tlp, kind):
        await self.port.send(tlp)
        self.behind[kind] -= 1

    def seen(self, packet):
        """A TLP came out of the hardware."""

    def room(self):
        """Whether the other end has credit for a TLP of any length, beside those that wait."""
        credits, made = self.port.fc_state[0], 0
        if not self.port.fc_initialized:
            return 0
        for kind, (fc, most) in enumerate(((FcType.P, 257), (FcType.NP, 2), (FcType.CPL, 257))):
            made |= int(self.behind[kind] == 0 and credits.tx_has_credit(fc, most)) << kind
        return made & ~self.hold

    async def run(self):
        while True:
            await FallingEdge(self.dut.clk)
            self.pin("m_tlp_tready").value = int(self.random.randrange(100) >= self.pause)
            self.pin("m_tlp_room").value = self.room()
            await RisingEdge(self.dut.clk)
            if not (self.pin("m_tlp_tvalid").value and self.pin("m_tlp_tready").value):
                continue
            count = int(self.pin("m_tlp_tkeep").value).bit_length()
            self.now += int(self.pin("m_tlp_tdata").value).to_bytes(self.width // 8, "little")[:count]
            if self.pin("m_tlp_tlast").value:
                packet, self.now = self.now, b""
                self.went.append(packet)
                self.seen(packet)
                if packet[0] >> 4 in (3, 7) or self.in_reset:
                    continue
                tlp, kind = Tlp.unpack(packet), int(self.pin("m_tlp_tuser").value)
                assert kind == (0 if tlp.is_posted() else 2 if tlp.is_completion() else 1)
                self.behind[kind] += 1
                cocotb.start_soon(self.to_port(tlp, kind))


class Slot(Link):
    """The box's: behind the hardware is an endpoint, which it can reset."""

    def __init__(self, dut, load=(0, 0), seed=9):
        super().__init__(dut, "", load, seed)
        self.endpoint = MemoryEndpoint()
        self.region = self.endpoint.add_mem_region(1 << 16)
        self.device = Device(self.endpoint)
        self.device.connect(self.port)
        self.reset_clocks, self.resets = 30, 0
        dut.link_done.value = 0
        cocotb.start_soon(self.reset())

    def seen(self, packet):
        cover_tlp(packet, "to the device")
        if hasattr(self.dut, "stat_passed"):
            cover_counters(self.dut)

    async def reset(self):
        while True:
            await RisingEdge(self.dut.clk)
            if not self.dut.link_reset.value:
                continue
            self.in_reset = True
            self.resets += 1
            for _ in range(self.reset_clocks):
                await RisingEdge(self.dut.clk)
            while self.source.queue:
                await RisingEdge(self.dut.clk)
            await FallingEdge(self.dut.clk)
            self.dut.link_done.value = 1
            while self.dut.link_reset.value:
                await RisingEdge(self.dut.clk)
            await FallingEdge(self.dut.clk)
            self.endpoint.bar = [0] * 6
            self.endpoint.bus_master_enable = self.endpoint.memory_space_enable = False
            self.in_reset = False
            self.dut.link_done.value = 0


async def bench(dut, load=(0, 0), body_bytes=BODY, seed=5):
    host, link = Host(dut, load, seed, body_bytes), Slot(dut, load, seed + 4)
    await start(dut)
    return host, link


async def ready(dut, load=(0, 0), **options):
    """A host that has the device, its BAR at 0xA000_0000."""
    host, link = await bench(dut, load, **options)
    await host.begin()
    await host.attach()
    await host.bring_up()
    return host, link

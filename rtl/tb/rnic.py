"""A driver of the RNIC core for its tests: tables, queues and doorbells as docs/rnic.md says, memory by cocotbext-axi, and the link."""

import mmap
import struct

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiRamRead, AxiRamWrite, AxiReadBus, AxiWriteBus

from axis import Sink, Source, start
from coverage_rnic import cover, cover_leaving, cover_wqe

BAR0, BAR2, BAR4 = 0 << 23, 1 << 23, 2 << 23
SMT, PBL, CMT, QPC = (BAR4 + (place << 20) for place in range(4))
RESET, INIT, RTR, RTS, SQD, SQE, ERROR = range(7)
LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE = 1, 2, 4
WRITE, SEND, SEND_INVALIDATE, READ, NOTHING = 0, 2, 4, 5, 10
SIGNALED, FENCE, SOLICITED, INLINE, FLAGS = 1, 2, 4, 8, 16
EVENTS, EVENT = 0x070, 0x078
BOTF_KICK, BOTF, AOTF, HEADERS = 0x020, 0x400, 0x800, 0xC00
PEER, STREAM = 7, 5
SQ, RQ, CQ = 0x10000, 0x20000, 0x30000  # rings of QP n at + n * 0x1000
LOG2 = 5


def sge(to=0, stag=0, length=0):
    return struct.pack("<QII", to, stag, length)


def send_wqe(opcode, identifier, sges=(), remote=(0, 0), flags=SIGNALED, inline=b"", tell=None, word=0):
    """`remote`: STag, TO. `sges`: bytes of each. `tell`: flags of PUSH and PULL, (local, remote), each None or (STag, TO, value).
    `word`: STag to be invalidated."""
    body = inline or b"".join(sges)
    body = body.ljust(32 + -(-max(len(body) - 32, 0) // 64) * 64, b"\0")
    if tell is not None:
        local, far = tell
        which = int(local is not None) | int(far is not None) << 1
        body += struct.pack("<IIQQIIQQ", which, *(local or (0, 0, 0)), (far or (0, 0, 0))[0], 0, *(far or (0, 0, 0))[1:]).ljust(64, b"\0")
        flags |= FLAGS
    head = struct.pack(
        "<BBBBIQQII", opcode, flags | (INLINE if inline else 0), 1 + (len(body) - 32) // 64, len(sges), len(inline), identifier, remote[1], remote[0], word,
    )
    return head + body


def receive_wqe(identifier, sges):
    return (struct.pack("<BBBBIQ", 0, 0, 1, len(sges), 0, identifier) + b"".join(sges)).ljust(64, b"\0")


def segment(qp, opcode, data=b"", last=True, tagged=None, untagged=None):
    """The payload of a record of kind 3. `tagged`: (STag, TO). `untagged`: (ULP, QN, MSN, MO)."""
    control = (int(tagged is not None) << 15) | (int(last) << 14) | (1 << 8) | (1 << 6) | opcode
    rest = struct.pack(">IQ", *tagged) if tagged is not None else struct.pack(">IIII", *untagged)
    return struct.pack(">HH", qp, control) + rest + data


class Rnic:
    def __init__(self, dut):
        self.dut, self.width = dut, len(dut.m_axis_tdata) // 8
        self.memory = mmap.mmap(-1, 1 << 22)
        self.host = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.ports = [
            AxiRamRead(AxiReadBus.from_prefix(dut, "d"), dut.clk, dut.rst, mem=self.memory, size=1 << 22),
            AxiRamRead(AxiReadBus.from_prefix(dut, "q"), dut.clk, dut.rst, mem=self.memory, size=1 << 22),
            AxiRamWrite(AxiWriteBus.from_prefix(dut, "w"), dut.clk, dut.rst, mem=self.memory, size=1 << 22),
        ]
        self.records = Sink(dut, "m_seg_", ["length", "peer", "stream"])
        self.beats = Sink(dut, "m_axis_t", ["data", "keep", "last"])
        self.heads, self.stream = Source(dut, "s_seg_"), Source(dut, "s_axis_t")
        self.sent, self.posted, self.filled, self.seen = [], {}, {}, {}
        self.loop = False
        dut.segment_bytes.value = 1472
        dut.lost_valid.value = 0
        cocotb.start_soon(self.gather())

    async def gather(self):
        """Segments out of the link: kept, and in a loop handed back in."""
        packet, at, records = b"", 0, 0
        while True:
            await RisingEdge(self.dut.clk)
            while at < len(self.beats.taken):
                item = self.beats.taken[at][1]
                at += 1
                packet += item["data"].to_bytes(self.width, "little")[: item["keep"].bit_count()]
                if item["last"]:
                    while records >= len(self.records.taken):
                        await RisingEdge(self.dut.clk)
                    record = self.records.taken[records][1]
                    records += 1
                    assert record["length"] == len(packet), "the record tells another length than its bytes have"
                    self.sent.append((record["peer"], packet))
                    cover_leaving(packet)
                    if self.loop:
                        self.inject(packet, record["peer"])
                    packet = b""

    def inject(self, packet, peer=PEER):
        """A segment from the link."""
        cover(f"opcode {packet[3] & 15 if len(packet) > 3 else 'without'} comes")
        self.heads.queue.append({"length": len(packet), "peer": peer})
        for place in range(0, len(packet), self.width):
            part = packet[place : place + self.width]
            self.stream.queue.append({
                "data": int.from_bytes(part, "little"), "keep": (1 << len(part)) - 1, "last": int(place + self.width >= len(packet)),
            })

    async def start(self):
        await start(self.dut)
        await self.host.write_dword(0x008, 1)

    async def register(self, index, address, length, access, key=0x11, pd=9, pages=None, shift=12, base=None):
        """A region: DIRECT, or of `pages`, None for an absent one. Gives its STag. TOs count from `base`, which is the address unless told."""
        first = 0
        if pages:
            first = index * 64
            for place, page in enumerate(pages):
                await self.bring(first + place, page)
        word = struct.pack(
            "<IIQQIIQQ", (key << 24) | (access << 8) | (0 if pages else 8) | 1, pd | (shift << 16), address if base is None else base, length,
            first, 0, address % (1 << shift) if pages else address,
            pages[0] | 1 if pages and pages[0] is not None else 0,
        )
        for place in range(40, -8, -8):
            await self.host.write(SMT + 64 * index + place, word[place : place + 8])
        return index << 8 | key

    async def lose(self, peer=PEER):
        """The session with the peer is no more."""
        await FallingEdge(self.dut.clk)
        self.dut.lost_peer.value, self.dut.lost_valid.value = peer, 1
        while not self.dut.lost_ready.value:
            await FallingEdge(self.dut.clk)
        self.dut.lost_valid.value = 0

    async def events(self):
        """All events, oldest first: (kind, QP or CQ)."""
        found = []
        while await self.host.read_dword(EVENTS) & 1:
            event = await self.host.read_qword(EVENT)
            cover(f"event {event & 0xFF}")
            found.append((event & 0xFF, event >> 16 & 0xFFFF))
        assert await self.host.read_qword(EVENT) == 0
        return found

    async def bring(self, entry, page):
        """An entry of the PBLMT."""
        await self.host.write_qword(PBL + 8 * entry, 0 if page is None else page | 1)

    async def cq(self, index, log2=6):
        await self.host.write_qword(CMT + 64 * index + 8, CQ + 0x1000 * index)
        await self.host.write_qword(CMT + 64 * index, 1 | log2 << 8 | index << 16 | 3 << 32)
        self.seen[index] = 0

    async def qp(self, number, peer_qp, pd=9, rights=7, to=RTS, reads=4, cq=None):
        cq = number if cq is None else cq
        words = struct.pack(
            "<HHHHHHHBBQQHHHBBIIIIII", 0, number, pd, 3, cq, cq, 0, LOG2, LOG2, SQ + number * 0x1000, RQ + number * 0x1000,
            PEER, peer_qp, STREAM, reads, reads, rights << 8, 100, 1, 1, 0, 1000,
        )
        await self.host.write(QPC + 256 * number, words)
        self.posted[number], self.filled[number] = 0, 0
        for state in range(INIT, to + 1):
            assert await self.go(number, state)

    async def go(self, number, state):
        """A change of state; whether it was done."""
        await self.host.write_dword(0x064, number | state << 16)
        while True:
            command = await self.host.read_dword(0x064)
            if not command >> 31:
                return not command >> 30 & 1

    async def post(self, number, *wqes, ring=True):
        for wqe in wqes:
            cover_wqe(wqe, "from the ring")
        for block in (wqe[at : at + 64] for wqe in wqes for at in range(0, len(wqe), 64)):
            place = SQ + number * 0x1000 + 64 * (self.posted[number] % (1 << LOG2))
            self.memory[place : place + 64] = block
            self.posted[number] += 1
        if ring:
            await self.host.write_dword(BAR2 + 4096 * number, self.posted[number] & 0xFFFF)

    async def kick(self, number, wqe, blocks=None, pick=None):
        """BOTF: the WQE into the window, in pieces of any order if `pick` shuffles them, and the kick."""
        cover_wqe(wqe, "kicked")
        page = BAR2 + 4096 * number
        pieces = [(at, wqe[at : at + 8]) for at in range(0, len(wqe), 8)]
        if pick:
            pieces = [(at + half, part[half : half + 4]) for at, part in pieces for half in (0, 4)] if pick.random() < 0.3 else pieces
            pick.shuffle(pieces)
        for at, part in pieces:
            await self.host.write(page + BOTF + at, part)
        await self.host.write_dword(page + BOTF_KICK, len(wqe) // 64 if blocks is None else blocks)

    async def prepare(self, number, place, wqe):
        """A header of AOTF."""
        cover_wqe(wqe, "stored")
        await self.host.write(BAR2 + 4096 * number + HEADERS + 64 * place, wqe)

    async def store(self, number, place, value):
        """AOTF."""
        await self.host.write_qword(BAR2 + 4096 * number + AOTF + 8 * place, value)

    async def dropped(self, number):
        """On-the-fly sends that were dropped, by QP_STATUS."""
        count = (await self.host.read_qword(BAR2 + 4096 * number + 0x018)) >> 48
        if count:
            cover("dropped: on the fly")
        return count

    async def fill(self, number, *wqes):
        for wqe in wqes:
            place = RQ + number * 0x1000 + 64 * (self.filled[number] % (1 << LOG2))
            self.memory[place : place + 64] = wqe
            self.filled[number] += 1
        await self.host.write_dword(BAR2 + 4096 * number + 4, self.filled[number] & 0xFFFF)

    async def completion(self, cq, clocks=6_000):
        """The next CQE: (identifier, status, opcode, QP, bytes, word 20)."""
        count = self.seen[cq]
        place = CQ + 0x1000 * cq + 32 * (count % 64)
        phase = 1 if count // 64 % 2 == 0 else 0
        for _ in range(clocks):
            if self.memory[place + 10] >> 7 == phase and any(self.memory[place : place + 32]):
                self.seen[cq] += 1
                entry = self.memory[place : place + 32]
                identifier, status, opcode = struct.unpack_from("<QBB", entry)
                cover(f"{'receive' if opcode & 0x80 else 'send'} CQE of status {status}")
                qp, = struct.unpack_from("<H", entry, 12)
                count, word = struct.unpack_from("<II", entry, 16)
                await self.host.write_qword(BAR2 + 4096 * qp + 8, cq | self.seen[cq] << 32)
                return identifier, status, opcode, qp, count, word
            await RisingEdge(self.dut.clk)
        raise AssertionError(f"no CQE in CQ {cq}")

    async def quiet(self, clocks=300):
        for _ in range(clocks):
            await RisingEdge(self.dut.clk)

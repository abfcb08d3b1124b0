"""es_peb between a host of docs/wire.md and an endpoint of cocotbext-pcie: what is written is there, what is wrong is counted and does no more."""

import random

import cocotb
from cocotb.triggers import RisingEdge
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpAttr, TlpType
from cocotbext.pcie.core.utils import PcieId

from coverage_peb import cover_counters
from peb import ATTACHED, CONTROL, DETACH, DETACHED, FUNCTION, HOST_NODE, HOT_RESET, HOT_RESET_DONE, PORT, TLP, UPSTREAM, attach, bench, config, memory, ready, record
from wire import vectors

BAR = 0xA000_0000
LOADS = [(0, 0), (40, 40)]


def stat(dut, name):
    cover_counters(dut)
    return int(getattr(dut, f"stat_{name}").value)


async def settle(dut, clocks=400):
    for _ in range(clocks):
        await RisingEdge(dut.clk)


@cocotb.test()
@cocotb.parametrize(load=LOADS)
async def a_host_sees_a_switch_and_the_device(dut, load):
    host, link = await ready(dut, load)
    for target, device in ((UPSTREAM, 0x0001E75E), (PORT, 0x0002E75E)):
        assert await host.config_read(target, 0) == device
        assert await host.config_read(target, 8) == 0x06040000
        assert await host.config_read(target, 0xC) >> 16 == 1
        at, found = await host.config_read(target, 0x34), []
        while at:
            head = await host.config_read(target, at)
            found.append(head & 0xFF)
            at = head >> 8 & 0xFF
        assert found == [1, 0x10]
    assert await host.config_read(UPSTREAM, 0x18) == 0xFF0201
    assert await host.config_read(PORT, 0x80) >> 20 & 0xF == 6
    assert await host.config_read(FUNCTION, 0) == link.endpoint.vendor_id | link.endpoint.device_id << 16
    assert int(dut.max_payload.value) == 512 and int(dut.max_read.value) == 1024
    # Byte by byte.
    await host.config_write(PORT, 0x3C, 0x00001255, 0x1)
    assert await host.config_read(PORT, 0x3C) & 0xFFFF == 0x55
    # Sizing a BAR by all ones.
    await host.config_write(FUNCTION, 0x10, 0xFFFFFFFF)
    assert await host.config_read(FUNCTION, 0x10) == 0xFFFF0000


@cocotb.test()
@cocotb.parametrize(load=LOADS, body=[1404, 480])
async def both_ways_at_once_every_byte_is_where_it_should_be(dut, load, body):
    host, link = await ready(dut, load, body_bytes=body)
    pick = random.Random(51)
    bar, mirror = bytearray(1 << 16), bytearray(len(host.memory))
    host.memory[:] = mirror
    link.region[:] = bytes(bar)
    endpoint, done = link.endpoint, []

    async def device():
        for turn in range(25):
            length = pick.choice([1, 3, 4, 64, 127, 128, 500])
            at = pick.randrange(0, len(mirror) - 1024)
            data = pick.randbytes(length)
            await endpoint.mem_write(host.MEMORY + at, data)
            mirror[at : at + length] = data
            if turn % 2:
                assert await endpoint.mem_read(host.MEMORY + at, length) == data
        done.append(True)

    cocotb.start_soon(device())
    for _ in range(40):
        at, length = pick.randrange(0, len(bar) - 4096) , pick.choice([1, 2, 4, 7, 64, 128, 512, 2048])
        length = min(length, 4096 - at % 4096)
        data = pick.randbytes(length)
        host.request(memory(BAR + at, data=data), end=pick.random() < 0.5)
        bar[at : at + length] = data
        # What was written before it is read: nothing passes a Posted Request.
        got = await host.ask(memory(BAR + at, min(length, 128)))
        read = b"".join(bytes(part.data)[part.lower_address & 3 :] for part in got)[: min(length, 128)]
        assert read == data[:128]
    await host.until(lambda: done, "the device is done")
    await settle(dut)
    assert link.region[:] == bar and host.memory == mirror
    assert not host.strange and not host.wrong
    for name in ("down_malformed", "down_spoofed", "down_unrouted", "down_unrouted_completions", "up_malformed", "up_spoofed", "up_refused", "stray", "fence_timeouts"):
        assert stat(dut, name) == 0, name


@cocotb.test()
async def a_tlp_longer_than_a_body_comes_whole_both_ways(dut):
    host, link = await ready(dut, body_bytes=480)
    data = random.Random(52).randbytes(4096)
    host.request(memory(BAR + 0x2000, data=data))
    await host.until(lambda: link.region[0x2000:0x3000] == data, "written")
    tlp = memory(host.MEMORY + 0x1000, data=data[::-1], requester=FUNCTION)
    link.raw(bytes(tlp.pack()))
    await host.until(lambda: host.memory[0x1000:0x2000] == data[::-1], "written upwards")


@cocotb.test()
async def bad_tlps_of_the_host_are_counted_and_nothing_else(dut):
    host, link = await ready(dut)
    bad = [bytes.fromhex(vector["bytes"]) for vector in vectors("tlps") if "error" in vector and 4 <= len(vector["bytes"]) // 2 <= 4112]
    before = len(link.went)
    for packet in bad:
        host.send(TLP, 1, packet, end=False)
    host.flush()
    assert await host.config_read(FUNCTION, 0x3C) & 0xFF == 0xFF
    assert stat(dut, "down_malformed") == len(bad) and len(link.went) == before + 1
    assert not dut.broken.value


@cocotb.test()
async def bad_tlps_of_the_device_are_counted_and_nothing_else(dut):
    host, link = await ready(dut)
    bad = [bytes.fromhex(vector["bytes"]) for vector in vectors("tlps") if "error" in vector and vector["bytes"]]
    for packet in bad:
        link.raw(packet)
    link.raw(bytes(5000))
    await link.endpoint.mem_write(host.MEMORY, b"behind them")
    await host.until(lambda: host.memory[:11] == b"behind them", "what is behind bad TLPs")
    assert stat(dut, "up_malformed") == len(bad) + 1 and len(host.requests) == 1


@cocotb.test()
async def the_good_vectors_go_where_they_should_or_are_refused(dut):
    """Requests of the vectors are of other Requesters, to other addresses: each ends with UR, or is dropped, and is counted."""
    host, link = await ready(dut)
    link.hold = 7
    before = stat(dut, "down")
    good = [bytes.fromhex(vector["bytes"]) for vector in vectors("tlps") if "error" not in vector]
    for packet in good:
        host.send(TLP, 1, packet, end=False)
    host.flush()
    await host.until(lambda: not host.source.queue, "all in")
    await settle(dut, 2000)
    names = ("down_malformed", "down_spoofed", "down_unrouted", "down_unrouted_completions")
    counted = sum(stat(dut, name) for name in names) + stat(dut, "down") - before
    assert stat(dut, "down_malformed") == 0
    # The others are for the ports themselves, or Messages that end here.
    assert len(good) - 20 < counted <= len(good), (counted, len(good))


@cocotb.test()
async def requests_that_lead_nowhere_are_refused(dut):
    host, link = await ready(dut)
    before = len(link.went)

    async def refused(tlp, completer=UPSTREAM):
        got, = await host.ask(tlp)
        assert got.status == CplStatus.UR and got.completer_id == completer, got
        assert got.byte_count == (tlp.get_be_byte_count() if tlp.fmt_type in (TlpType.MEM_READ, TlpType.MEM_READ_64) else 4)

    await refused(memory(0xB000_0000, 64))
    await refused(memory(0x12_A000_0003, 9))
    await refused(config(PcieId(3, 1, 0), 0))
    await refused(config(PcieId(4, 0, 0), 0))
    await refused(config(PcieId(2, 1, 0), 0))
    assert stat(dut, "down_unrouted") == 5
    await refused(memory(BAR, 4, requester=PcieId(1, 2, 3)))
    assert stat(dut, "down_spoofed") == 1
    host.request(memory(0xB000_0000, data=b"lost"))
    host.request(memory(BAR, data=b"lost", requester=FUNCTION))
    # Memory Space Enable of the port, then of the bridge's upstream one, off.
    for port in (PORT, UPSTREAM):
        await host.config_write(port, 4, 4)
        await refused(memory(BAR, 4))
        await host.config_write(port, 4, 6)
    # Power states other than D0.
    await host.config_write(PORT, 0x44, 3)
    await refused(memory(BAR, 4))
    await host.config_write(PORT, 0x44, 0)
    poisoned = config(PORT, 0x3C, 0x77)
    poisoned.ep = True
    await refused(poisoned)
    assert await host.config_read(PORT, 0x3C) & 0xFF == 0
    stray = Tlp.create_completion_data_for_tlp(memory(BAR, 4, requester=PcieId(9, 0, 0)), PcieId(0, 0, 0))
    stray.set_data(b"none")
    host.send(TLP, 1, bytes(stray.pack()))
    await settle(dut)
    assert len(link.went) == before
    assert (stat(dut, "down_unrouted"), stat(dut, "down_spoofed"), stat(dut, "down_unrouted_completions")) == (9, 2, 1)


@cocotb.test()
async def requests_of_the_device_that_may_not_pass_are_refused(dut):
    host, link = await ready(dut)

    async def refused(tlp):
        before = len(link.went)
        link.raw(bytes(tlp.pack()))
        await host.until(lambda: len(link.went) > before, "refused")
        got = Tlp.unpack(link.went[-1])
        assert got.is_completion() and got.status == CplStatus.UR and got.completer_id == PORT
        assert got.requester_id == tlp.requester_id and got.tag == tlp.tag

    ours = {"requester": FUNCTION}
    await refused(memory(BAR + 0x123, 8, **ours))
    request = config(PORT, 0)
    request.requester_id, request.tag = FUNCTION, 77
    await refused(request)
    await refused(memory(host.MEMORY, 4, requester=PcieId(3, 0, 1)))
    await refused(memory(host.MEMORY, 4, requester=PcieId(0, 0, 0)))
    link.raw(bytes(memory(host.MEMORY, data=b"spoofed!", requester=PORT).pack()))
    # Without Bus Master Enable of a port nothing leaves.
    for port in (PORT, UPSTREAM):
        await host.config_write(port, 4, 2)
        await refused(memory(host.MEMORY, 4, **ours))
        link.raw(bytes(memory(host.MEMORY, data=b"may not", **ours).pack()))
        await settle(dut)
        await host.config_write(port, 4, 6)
    # Completions that answer nobody above.
    answer = Tlp.create_completion_for_tlp(memory(0, 4, requester=PcieId(5, 0, 0)), FUNCTION)
    link.raw(bytes(answer.pack()))
    foreign = Tlp.create_completion_for_tlp(memory(0, 4), PORT)
    link.raw(bytes(foreign.pack()))
    await settle(dut)
    assert not host.requests and not host.wrong
    assert (stat(dut, "up_refused"), stat(dut, "up_spoofed")) == (7, 4)


@cocotb.test()
async def messages_go_to_the_root_complex_and_come_from_it(dut):
    host, link = await ready(dut)
    good = [packet for packet in (bytes.fromhex(vector["bytes"]) for vector in vectors("tlps") if "error" not in vector) if packet[0] >> 4 in (3, 7)]
    before = len(link.went)
    for packet in good:
        link.raw(packet[:4] + bytes([3, 0]) + packet[6:])
    wanted = [packet[:4] + bytes([3, 0]) + packet[6:] for packet in good if packet[0] & 7 in (0, 4, 5)]
    await host.until(lambda: len(host.requests) == len(wanted), "all Messages")
    assert host.requests == wanted
    down = [packet[:4] + bytes([0, 0]) + packet[6:] for packet in good]
    for packet in down:
        host.send(TLP, 1, packet)
    await settle(dut, 1000)
    passed = [packet for packet in down if packet[0] & 7 == 3 or (packet[0] & 7 == 2 and packet[8] == 3)]
    assert link.went[before:] == passed


@cocotb.test()
@cocotb.parametrize(load=LOADS)
async def what_waits_for_credit_holds_up_only_what_it_may(dut, load):
    host, link = await ready(dut, load)
    link.hold = 2
    reads = [host.request(memory(BAR + 4 * at, 4)) for at in range(200)]
    host.request(memory(BAR + 0x100, data=b"passes"))
    await host.until(lambda: link.region[0x100:0x106] == b"passes", "a write that passes reads")
    # And so do Completions of the device's own reads.
    host.memory[:16] = bytes(range(16))
    assert await link.endpoint.mem_read(host.MEMORY, 16) == bytes(range(16))
    link.hold = 0
    await host.until(lambda: all(read["done"] for read in reads), "all reads")
    assert stat(dut, "passed") > 0


@cocotb.test()
async def writes_behind_a_configuration_write_wait_until_it_is_done(dut):
    host, link = await ready(dut)
    for turn in range(8):
        base = BAR + 0x10000 * (turn % 2)
        entry = host.request(config(FUNCTION, 0x10, base), end=False)
        host.request(memory(base + 16 * turn, data=bytes([turn] * 16)))
        await host.until(lambda: entry["done"], "configured")
        await settle(dut, 100)
        assert link.region[16 * turn : 16 * turn + 16] == bytes([turn] * 16)
    assert stat(dut, "fence_timeouts") == 0


@cocotb.test()
async def attach_is_refused_for_cause_and_a_device_that_is_given_back_is_reset(dut):
    host, link = await bench(dut)
    await host.begin()

    async def asked(stream, status, **fields):
        host.send(CONTROL, 0, attach(stream, **fields))
        await host.told(0, bytes([ATTACHED, status]) + stream.to_bytes(2, "big") + bytes(4))

    await asked(1, 1, name="diskette")
    await asked(1, 1, name="dis")
    await asked(16, 3)
    await host.attach(3)
    await asked(3, 3)
    await asked(4, 2)
    host.send(CONTROL, 0, attach(5)[:39])
    host.send(CONTROL, 0, attach(0))
    host.send(CONTROL, 0, bytes([9, 0, 0, 7]))
    host.send(CONTROL, 3, bytes([12, 0, 0, 1]))
    resets = link.resets
    host.send(CONTROL, 3, bytes([DETACH, 0, 0, 0]))
    await host.told(3, bytes([DETACHED, 0, 0, 0]))
    assert link.resets == resets + 1 and not dut.attached.value
    await host.attach(2)
    await host.until(lambda: stat(dut, "resets") == link.resets, "reset")
    assert (stat(dut, "attached"), stat(dut, "denied"), stat(dut, "unknown")) == (2, 5, 4)


@cocotb.test()
async def only_the_nodes_of_the_peer_table_get_the_device(dut):
    host, _ = await bench(dut)
    await host.begin()
    for entries, status in (
        ([(0, 77, 1)], 2), ([(3, HOST_NODE ^ 1, 1)], 2), ([(3, HOST_NODE, 1)], 0), ([(3, HOST_NODE, 0)], 2), ([(0, 77, 0)], 0), ([(2, HOST_NODE, 1), (1, 5, 1)], 0),
    ):
        for entry in entries:
            await host.allow(*entry)
        host.send(CONTROL, 0, attach(1))
        await host.told(0, bytes([ATTACHED, status, 0, 1, 0 if status else 2, 0, 0, 0]))
        if not status:
            host.send(CONTROL, 1, bytes([DETACH, 0, 0, 0]))
            await host.told(1, bytes([DETACHED, 0, 0, 0]))
    assert (stat(dut, "attached"), stat(dut, "denied")) == (3, 3)


@cocotb.test()
@cocotb.parametrize(load=LOADS)
async def nothing_from_before_a_hot_reset_follows_it(dut, load):
    host, link = await ready(dut, load)
    for turn in range(4):
        link.hold = 2
        reads = [host.request(memory(BAR + 4 * at, 4), end=False) for at in range(12)]
        for at in range(6):
            link.raw(bytes(memory(host.MEMORY + 64 * at, data=bytes([turn] * 64), requester=FUNCTION).pack()))
        await settle(dut, 20 * turn)
        host.send(CONTROL, 1, bytes([HOT_RESET, 0, 0, 0]))
        await host.told(1, bytes([HOT_RESET_DONE, 0, 0, 0]))
        seen = len(host.requests)
        link.hold = 0
        await settle(dut)
        assert len(host.requests) == seen and not any(read["done"] for read in reads)
        host.waiting.clear()
        await host.bring_up()
        assert await host.config_read(FUNCTION, 0x3C) & 0xFF == 0xFF
    assert not host.wrong


@cocotb.test()
async def a_port_holds_its_link_in_reset_as_long_as_it_is_told_to(dut):
    host, link = await ready(dut)
    for port, register, on, off in ((PORT, 0x3C, 0x400000, 0), (UPSTREAM, 0x3C, 0x400000, 0), (PORT, 0x90, 0x10, 0)):
        resets = link.resets
        await host.config_write(port, register, on)
        await host.until(lambda: link.resets > resets, "reset")
        got, = await host.ask(config(FUNCTION, 0))
        assert got.status == CplStatus.UR
        # Others can be asked, and answered, meanwhile.
        host.send(CONTROL, 0, attach(7))
        await host.told(0, bytes([ATTACHED, 2, 0, 7, 0, 0, 0, 0]))
        assert dut.link_reset.value
        await host.config_write(port, register, off)
        await host.until(lambda: not dut.link_reset.value and not dut.link_done.value, "running")
        await settle(dut, 10)
        await host.bring_up()
        assert await host.config_read(FUNCTION, 0) & 0xFFFF == link.endpoint.vendor_id
    # Given back while it is held.
    await host.config_write(PORT, 0x3C, 0x400000)
    host.send(CONTROL, 1, bytes([DETACH, 0, 0, 0]))
    await host.told(1, bytes([DETACHED, 0, 0, 0]))


@cocotb.test()
async def a_session_that_ends_leaves_nothing_to_the_next(dut):
    host, link = await ready(dut)
    for turn in range(4):
        for at in range(10):
            host.request(memory(BAR + 64 * at, data=bytes([turn] * 64)), end=False)
            link.raw(bytes(memory(host.MEMORY + 64 * at, data=bytes([turn] * 64), requester=FUNCTION).pack()))
        host.flush()
        await settle(dut, 15 * turn + 1)
        await host.end()
        await settle(dut, 5 + 40 * turn)
        await host.begin()
        await host.attach(1 + turn % 2)
        assert not host.requests
        if turn % 2 == 0:
            await host.bring_up()
            assert await host.config_read(PORT, 0x18) == 0x030302
            link.region[:4] = b"data"
            got, = await host.ask(memory(BAR, 4))
            assert bytes(got.data) == b"data"
        else:
            await host.end()
            await settle(dut, 3)
            await host.begin()
            await host.attach()
            await host.bring_up()
        assert not host.wrong


@cocotb.test()
async def what_is_no_row_of_records_breaks_the_session(dut):
    host, _ = await bench(dut)
    bad = [bytes.fromhex(vector["bytes"]) for vector in vectors("records") if "error" in vector]
    good = record(CONTROL, 0, 0, bytes([12, 0, 0, 0]))
    bad += [
        record(CONTROL, 0, 1, bytes(4)),
        record(CONTROL, 16, 0, bytes(4)),
        good + record(CONTROL, 0, 2, bytes(4)),
        good + record(CONTROL, 0, 1, bytes(4), first=False),
        record(CONTROL, 0, 0, bytes(4), last=False) + record(CONTROL, 0, 1, bytes(4)),
        record(CONTROL, 0, 0, bytes(4), last=False) + record(TLP, 0, 1, bytes(4), first=False),
        record(CONTROL, 0, 0, bytes(6), last=False),
        record(TLP, 1, 0, bytes(1200), last=False)[:-4],
    ]
    for body in bad:
        if not body:
            continue
        await host.begin()
        host.raw(body)
        await host.until(lambda: dut.broken.value, body.hex())
        host.raw(record(CONTROL, 0, 1, attach(1)))
        await settle(dut, 60)
        assert not host.control
        await host.end()
        await settle(dut, 100)
        assert not dut.broken.value
    await host.begin()
    await host.attach()


@cocotb.test()
async def a_record_of_more_than_a_tlp_breaks_the_session(dut):
    host, _ = await bench(dut)
    await host.begin()
    await host.attach()
    for place in range(4):
        host.raw(record(TLP, 1, place, bytes(1388), first=place == 0, last=False))
    await host.until(lambda: dut.broken.value, "broken")


@cocotb.test()
async def records_of_others_are_dropped_and_counted(dut):
    host, link = await ready(dut)
    before = len(link.went)
    for kind, stream in ((TLP, 0), (TLP, 2), (3, 1), (4, 1), (CONTROL, 5)):
        host.send(kind, stream, bytes(range(24)))
    assert await host.config_read(PORT, 0) == 0x0002E75E
    assert stat(dut, "stray") == 5 and len(link.went) == before
    # The vectors, a session each.
    for vector in vectors("records"):
        if "error" in vector or not vector["bytes"]:
            continue
        body = bytes.fromhex(vector["bytes"])
        places = {}
        for one in vector["records"]:
            places.setdefault(one["stream"], one["stream_sequence"])
        if any(stream >= 16 or places[stream] for stream in places):
            continue
        await host.end()
        await settle(dut, 100)
        await host.begin()
        host.raw(body)
        await settle(dut, 100)
        begun = vector["records"][0]["first"]
        assert bool(dut.broken.value) == (not begun), vector["name"]


@cocotb.test()
async def relaxed_completions_may_pass_a_write_that_is_stuck(dut):
    host, link = await ready(dut)
    link.hold = 1
    host.request(memory(BAR, data=b"stuck"))
    host.memory[:4] = b"read"
    read = memory(host.MEMORY, 4, requester=FUNCTION, attr=TlpAttr.RO)
    before = len(link.went)
    link.raw(bytes(read.pack()))
    await host.until(lambda: len(link.went) == before + 1, "the Completion")
    assert Tlp.unpack(link.went[-1]).is_completion()
    link.hold = 0
    await host.until(lambda: link.region[:5] == b"stuck", "the write")

"""A Root Port and a box in hardware with an Ethernet between them: a third party's root complex enumerates a third party's endpoint, and both use each other."""

import random

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge, with_timeout
from cocotbext.pcie.core import RootComplex

from axis import start
from mac import Link as Wire
from peb import Link, Slot

NAME = "disk"


def padded(name):
    return int.from_bytes(name.encode().ljust(32, b"\0"), "big")


class Pair:
    def __init__(self, dut, load=(0, 0), lose=0):
        self.dut = dut
        self.wires = Wire(dut, "a", "b", lose=lose, seed=1), Wire(dut, "b", "a", lose=lose, seed=2)
        self.root, self.slot = Link(dut, "root_", load, 3), Slot(dut, load, 4)
        self.complex = RootComplex()
        self.complex.make_port().connect(self.root.port)
        dut.a_s_mac_tuser.value = dut.b_s_mac_tuser.value = 0
        dut.want.value = dut.root_link_reset.value = 0
        dut.box_open.value = 1
        dut.wanted_name.value = dut.function_name.value = padded(NAME)

    def count(self, name):
        return int(getattr(self.dut, name).value)

    async def set(self, **pins):
        await FallingEdge(self.dut.clk)
        for name, value in pins.items():
            getattr(self.dut, name).value = value

    async def until(self, is_so, what, clocks=60_000):
        for _ in range(clocks):
            if is_so():
                return
            await RisingEdge(self.dut.clk)
        raise AssertionError(f"never {what}")

    async def linked(self):
        await self.set(want=1)
        await self.until(lambda: self.dut.root_link_up.value, "a link")

    async def device(self):
        """Enumerates, and gives the function with its BAR open."""
        await with_timeout(self.complex.enumerate(timeout=20, timeout_unit="ms"), 60, "ms")
        function = self.complex.find_device(self.slot.endpoint.pcie_id)
        assert function is not None, "the endpoint was found"
        await function.enable_device()
        await function.set_master()
        return function


async def pair(dut, **options):
    made = Pair(dut, **options)
    await start(dut)
    return made


async def exchange(bench, function, turns, seed=5):
    """Both sides write and read each other's memory at once; every byte is compared."""
    pick, done = random.Random(seed), []
    window, endpoint = function.bar_window[0], bench.slot.endpoint
    region = bench.complex.mem_pool.alloc_region(1 << 15)
    mirror = bytearray(region[:])
    bar = bytearray(bench.slot.region[:])

    async def device():
        for _ in range(turns):
            at, length = pick.randrange(0, 1 << 14), pick.choice([1, 3, 4, 64, 127, 512, 1500])
            data = pick.randbytes(length)
            await endpoint.mem_write(region.get_absolute_address(at), data)
            mirror[at : at + length] = data
            assert await endpoint.mem_read(region.get_absolute_address(at), length) == data
        done.append(True)

    cocotb.start_soon(device())
    for _ in range(turns):
        at, length = pick.randrange(0, len(bar) - 4096), pick.choice([1, 2, 4, 7, 64, 128, 1000])
        data = pick.randbytes(length)
        await window.write(at, data)
        bar[at : at + length] = data
        assert await window.read(at, length) == data
    await bench.until(lambda: done, "the device is done")
    assert bench.slot.region[:] == bar and region[:] == mirror


CLEAN = ("root_stat_down_malformed", "root_stat_up_malformed", "root_stat_up_refused", "root_stat_stray", "stat_down_malformed", "stat_up_spoofed", "stat_stray")


@cocotb.test()
@cocotb.parametrize(load=[(0, 0), (40, 40)], lose=[0, 3])
async def a_root_complex_enumerates_the_device_and_both_reach_each_other(dut, load, lose):
    bench = await pair(dut, load=load, lose=lose)
    await bench.linked()
    await exchange(bench, await bench.device(), 12)
    for name in CLEAN:
        assert bench.count(name) == 0, name
    assert (sum(wire.lost for wire in bench.wires) > 0) == (lose > 0)


@cocotb.test()
async def interrupts_come_behind_the_data_they_tell_of(dut):
    bench = await pair(dut)
    await bench.linked()
    await bench.device()
    region = bench.complex.mem_pool.alloc_region(8192)
    base, endpoint = region.get_absolute_address(0), bench.slot.endpoint
    data = random.Random(7).randbytes(4096)
    # As an MSI is: a word at another address, behind the data.
    await endpoint.mem_write(base, data)
    await endpoint.mem_write(base + 4096, b"done")
    await bench.until(lambda: region[4096:4100] == b"done", "the last word")
    assert region[:4096] == data


@cocotb.test()
async def with_nothing_below_requests_end_with_ur(dut):
    bench = await pair(dut)
    assert not dut.root_link_up.value
    await with_timeout(bench.complex.enumerate(timeout=20, timeout_unit="ms"), 60, "ms")
    assert bench.count("root_stat_down_refused") > 0 and bench.count("root_stat_down") == 0
    assert not bench.slot.went, "nothing came to the device"


@cocotb.test()
async def a_function_that_is_not_there_is_asked_for_again(dut):
    bench = await pair(dut)
    dut.wanted_name.value = padded("another")
    await bench.set(want=1)
    await bench.until(lambda: bench.count("root_stat_denied") >= 2, "refused twice")
    assert bench.count("refusal") == 1 and not dut.root_link_up.value and not dut.box_attached.value
    await bench.set(wanted_name=padded(NAME))
    await bench.until(lambda: dut.root_link_up.value, "a link")


@cocotb.test()
async def a_function_is_given_back_and_the_session_ends_with_it(dut):
    bench = await pair(dut)
    await bench.linked()
    await exchange(bench, await bench.device(), 3)
    before = bench.slot.resets
    await bench.set(want=0)
    await bench.until(lambda: not dut.root_attached.value and not dut.box_attached.value, "given back")
    assert not dut.root_link_up.value and bench.slot.resets > before
    await bench.until(lambda: not dut.root_up.value and not dut.box_up.value, "the session ends with it")


@cocotb.test()
async def a_hot_reset_reaches_the_device(dut):
    bench = await pair(dut)
    await bench.linked()
    await exchange(bench, await bench.device(), 3)
    before = bench.slot.resets
    await bench.set(root_link_reset=1)
    await bench.until(lambda: bench.slot.resets > before, "reset")
    for _ in range(500):
        await RisingEdge(dut.clk)
    assert not dut.root_link_up.value, "as long as it is held"
    await bench.set(root_link_reset=0)
    await bench.until(lambda: dut.root_link_up.value, "up again")
    assert bench.count("root_stat_resets") == 1 and dut.root_attached.value and dut.box_attached.value
    await exchange(bench, await bench.device(), 3)


@cocotb.test()
async def a_box_that_goes_takes_the_link_with_it(dut):
    bench = await pair(dut)
    await bench.linked()
    function = await bench.device()
    await exchange(bench, function, 3)
    before = bench.slot.resets
    await bench.set(box_open=0)
    await bench.until(lambda: not dut.root_link_up.value, "no link")
    await bench.until(lambda: not dut.box_attached.value and bench.slot.resets > before, "reset")
    # What asks for it now gets an answer, too.
    refused = bench.count("root_stat_down_refused")
    await with_timeout(function.config_read_word(0), 1, "ms")
    assert bench.count("root_stat_down_refused") == refused + 1

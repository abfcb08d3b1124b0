"""Drivers and monitors of ready/valid streams with idle and back-pressure, and the grid that all stream modules are tested on."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

# (idle, back-pressure): in how many of 100 clocks the source pauses, the sink does not take.
GRID = [(0, 0), (50, 0), (0, 50), (50, 50), (90, 10), (10, 90)]


async def start(dut):
    """Clock and reset."""
    cocotb.start_soon(Clock(dut.clk, 8, unit="ns").start())
    dut.rst.value = 1
    for _ in range(3):
        await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.rst.value = 0


class Source:
    """Offers items in order. An item is a dictionary: signal name after the prefix -> value."""

    def __init__(self, dut, prefix, idle=0, seed=0):
        self.dut, self.idle = dut, idle
        self.valid, self.ready = getattr(dut, f"{prefix}valid"), getattr(dut, f"{prefix}ready")
        self.prefix, self.random = prefix, random.Random(seed)
        self.queue, self.clocks = [], 0
        self.valid.value = 0
        cocotb.start_soon(self.run())

    async def run(self):
        while True:
            await FallingEdge(self.dut.clk)
            if not self.queue or self.random.randrange(100) < self.idle:
                self.valid.value = 0
                continue
            for name, value in self.queue[0].items():
                getattr(self.dut, self.prefix + name).value = value
            self.valid.value = 1
            while True:
                await RisingEdge(self.dut.clk)
                if self.ready.value:
                    break
            self.queue.pop(0)


class Sink:
    """Takes items and keeps (clock, item); checks that a stalled item stays as it is, but for resets and while the signal `alive` is low."""

    def __init__(self, dut, prefix, names, pause=0, seed=1, alive=None):
        self.dut, self.names, self.pause, self.alive = dut, names, pause, alive
        self.valid, self.ready = getattr(dut, f"{prefix}valid"), getattr(dut, f"{prefix}ready")
        self.signals = [getattr(dut, prefix + name) for name in names]
        self.random, self.taken, self.clock = random.Random(seed), [], 0
        cocotb.start_soon(self.run())

    async def run(self):
        stalled = None
        while True:
            await FallingEdge(self.dut.clk)
            self.ready.value = int(self.random.randrange(100) >= self.pause)
            await RisingEdge(self.dut.clk)
            self.clock += 1
            if self.dut.rst.value or (self.alive is not None and not self.alive.value):
                stalled = None
                continue
            if not self.valid.value:
                assert stalled is None, "valid fell before ready came"
                continue
            item = {name: int(signal.value) for name, signal in zip(self.names, self.signals)}
            assert stalled is None or item == stalled, "payload changed while it was stalled"
            if self.ready.value:
                self.taken.append((self.clock, item))
                stalled = None
            else:
                stalled = item

    async def wait(self, count, clocks=100_000):
        """Until `count` items have been taken; fails after so many clocks without it."""
        for _ in range(clocks):
            if len(self.taken) >= count:
                return [item for _, item in self.taken]
            await RisingEdge(self.dut.clk)
        raise AssertionError(f"{len(self.taken)} of {count} items after {clocks} clocks")

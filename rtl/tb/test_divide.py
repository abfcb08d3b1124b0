"""es_divide: quotients, in WIDTH + 1 clocks."""

import random

import cocotb
from cocotb.triggers import FallingEdge

from axis import start


@cocotb.test()
async def quotients_are_those_of_arithmetic(dut):
    width = len(dut.dividend)
    dut.start.value = 0
    await start(dut)
    pick = random.Random(1)
    for _ in range(200):
        dividend, divisor = pick.getrandbits(pick.randrange(1, width + 1)), pick.getrandbits(pick.randrange(1, width + 1))
        await FallingEdge(dut.clk)
        dut.dividend.value, dut.divisor.value, dut.start.value = dividend, divisor, 1
        await FallingEdge(dut.clk)
        dut.start.value = 0
        clocks = 1
        while not dut.done.value:
            await FallingEdge(dut.clk)
            clocks += 1
        assert clocks == width + 1
        assert int(dut.quotient.value) == (dividend // divisor if divisor else (1 << width) - 1)

"""es_replay: a packet number is new once, those far behind or ahead never."""

import random

import cocotb
from cocotb.triggers import FallingEdge

from axis import start


async def ask(dut, number):
    await FallingEdge(dut.clk)
    dut.number.value, dut.check.value = number, 1
    await FallingEdge(dut.clk)
    dut.check.value = 0
    for clocks in range(1, 12):
        if dut.done.value:
            assert clocks == 6, "an answer takes six clocks"
            return bool(dut.is_new.value)
        await FallingEdge(dut.clk)
    raise AssertionError("no answer")


@cocotb.test()
async def numbers_are_new_once_within_the_window(dut):
    dut.check.value = 0
    await start(dut)
    pick, seen, newest = random.Random(1), set(), None
    for _ in range(1500):
        kind = pick.randrange(10)
        if newest is None or kind < 4:
            number = (newest or 1 << 20) + pick.randrange(1, 4)
        elif kind < 8:
            number = newest - pick.randrange(4097)
        elif kind == 8:
            number = newest + pick.choice([64, 4096, 8191, 8192, 8193, 1 << 30])
        else:
            number = newest - pick.choice([4097, 8192, 8193, 70000])
        wanted = number not in seen and (newest is None or number > newest or newest - number <= 4096)
        assert await ask(dut, number) == wanted, f"{number - (newest or 0)} from the newest"
        if wanted:
            seen.add(number)
            newest = max(newest or 0, number)
    assert not await ask(dut, newest + (1 << 30) + 1), "too far ahead"
    assert await ask(dut, newest + 1), "and what is taken goes on"

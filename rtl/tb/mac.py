"""The link between two nodes: a MAC at either end, which sends at the link's rate and never waits, and what gets lost in between."""

import random

import cocotb
from cocotbext.eth import EthMacFrame, EthMacRx, EthMacTx
from cocotbext.eth.eth_mac import AxiStreamBus

CLOCK = 8e-9
# What Ethernet has around a frame's payload beside preamble and gap, which the model adds: header and FCS.
AROUND = 14 + 4


class Link:
    """One direction: MAC, wire, MAC. Frames in `lose` and `damage` of 100 do not come whole."""

    def __init__(self, dut, of, to, lose=0, damage=0, seed=0):
        width = len(dut.a_m_mac_tdata)
        speed = width / CLOCK
        self.out = EthMacTx(AxiStreamBus.from_prefix(dut, f"{of}_m_mac"), dut.clk, dut.rst, speed=speed, ifg=12 + AROUND)
        self.into = EthMacRx(AxiStreamBus.from_prefix(dut, f"{to}_s_mac"), dut.clk, dut.rst, speed=speed, ifg=12 + AROUND)
        self.lose, self.damage, self.pick = lose, damage, random.Random(seed)
        self.lost = self.damaged = self.carried = 0
        cocotb.start_soon(self.carry())

    async def carry(self):
        while True:
            data = bytearray((await self.out.recv()).data)
            self.carried += 1
            # The handshake is not what is tested here.
            if data[0] & 15 == 3 and self.pick.randrange(100) < self.lose:
                self.lost += 1
                continue
            if self.pick.randrange(100) < self.damage and self.carried > 4:
                data[self.pick.randrange(len(data))] ^= 1 << self.pick.randrange(8)
                self.damaged += 1
            await self.into.send(EthMacFrame(bytes(data)))


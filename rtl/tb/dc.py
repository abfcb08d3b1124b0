"""The memory behind a DC buffer, as es_peb_dc asks for it: in order, when it likes."""

import random

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge


class DcMemory:
    """`prefix` is in front of the signals of Requests, `back` of those of what was read; `content` is garbage at first, as memory is."""

    def __init__(self, dut, pause=0, seed=3, prefix="m_mem_", back="s_mem_"):
        self.dut, self.prefix, self.back, self.pause, self.random = dut, prefix, back, pause, random.Random(seed)
        self.word = len(self.pin("data")) // 8
        self.content = bytearray(self.random.randbytes(self.word << len(self.pin("address"))))
        self.owed, self.now, self.most = [], 0, 0  # reads: (the clock at which they may come, the word)
        self.came("valid").value = 0
        cocotb.start_soon(self.run())

    def pin(self, name):
        return getattr(self.dut, self.prefix + name)

    def came(self, name):
        return getattr(self.dut, self.back + name)

    async def run(self):
        ready, valid = self.pin("ready"), self.pin("valid")
        while True:
            await FallingEdge(self.dut.clk)
            self.now += 1
            ready.value = int(self.random.randrange(100) >= self.pause)
            comes = self.owed and self.owed[0][0] <= self.now and self.random.randrange(100) >= self.pause
            self.came("valid").value = int(bool(comes))
            if comes:
                self.came("data").value = int.from_bytes(self.owed.pop(0)[1], "little")
            await RisingEdge(self.dut.clk)
            if self.dut.rst.value or not (valid.value and ready.value):
                continue
            at = int(self.pin("address").value) * self.word
            if not self.pin("write").value:
                self.owed.append((self.now + self.random.choice([1, 5, 20]) if self.pause else self.now + 3, bytes(self.content[at : at + self.word])))
                self.most = max(self.most, len(self.owed))
                continue
            data, strobe = int(self.pin("data").value).to_bytes(self.word, "little"), int(self.pin("strobe").value)
            if strobe == (1 << self.word) - 1:
                self.content[at : at + self.word] = data
                continue
            for i in range(self.word):
                if strobe >> i & 1:
                    self.content[at + i] = data[i]

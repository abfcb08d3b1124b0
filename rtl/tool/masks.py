"""Derives the masks of CRC-32C (RFC 3720) that rtl/efe/es_crc32c_pkg.sv holds: which bits of a word go into which bit of the check."""

POLYNOMIAL = 0x82F63B78  # reflected
BYTES = 64  # of the longest word

HEAD = """// Masks of CRC-32C, made by rtl/tool/masks.py; lint holds them against it.
//
// DATA[i]: the bits of a word of 64 bytes, byte 0 in bits 7:0, whose exclusive-or is bit i of the state behind that word, from a state of zeros. A shorter
// word has the upper bits of each mask. A state before the word counts like bytes 0 to 3. UNDO[32n + i]: the bits of a state that are bit i of the
// state 2^n zero bytes earlier.
/* verilator lint_off UNUSEDPARAM */
package es_crc32c_pkg;
"""
TAIL = """
  // Clocks from a word at es_crc32c to the check behind it.
  function automatic int latency(input int data_w);
    return 2 + ($clog2(data_w / 8) + 1) / 2;
  endfunction
endpackage
/* verilator lint_on UNUSEDPARAM */
"""


def forward(state):
    for _ in range(8):
        state = state >> 1 ^ (POLYNOMIAL if state & 1 else 0)
    return state


def back(state, count):
    for _ in range(8 * count):
        top = state >> 31
        state = (state ^ (POLYNOMIAL if top else 0)) << 1 & 0xFFFFFFFF | top
    return state


def data_masks():
    masks = [0] * 32
    columns = [1 << bit for bit in range(8)]
    for byte in reversed(range(BYTES)):
        columns = [forward(column) for column in columns]
        for bit, column in enumerate(columns):
            for i in range(32):
                masks[i] |= (column >> i & 1) << (8 * byte + bit)
    return masks


def undo_masks(count):
    masks = [0] * 32
    for bit in range(32):
        column = back(1 << bit, count)
        for i in range(32):
            masks[i] |= (column >> i & 1) << bit
    return masks


def package():
    lines = [HEAD + "  localparam bit [31:0][511:0] DATA = {"]
    words = [f"    512'h{mask:0128x}" for mask in reversed(data_masks())]
    lines += [",\n".join(words), "  };", "  localparam bit [191:0][31:0] UNDO = {"]
    steps = []
    for step in reversed(range(6)):
        masks = [f"32'h{mask:08x}" for mask in reversed(undo_masks(1 << step))]
        rows = [", ".join(masks[at : at + 8]) for at in range(0, 32, 8)]
        steps.append(",\n".join("    " + row for row in rows))
    lines += [",\n".join(steps), "  };"]
    return "\n".join(lines) + "\n" + TAIL


if __name__ == "__main__":
    print(package(), end="")

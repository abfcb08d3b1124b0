#!/usr/bin/env python3
"""`./run rtl`: everything one does with the hardware. Starts with the machine's Python, goes on with that of .cache/rtl."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

USAGE = """./run rtl setup             simulator, synthesis and provers into .cache/rtl
./run rtl lint              verible, Verilator and slang without a warning
./run rtl test [BLOCK …]    lint, then every block's tests on all widths, then the proofs
./run rtl fast              a part of these, for ./run test
./run rtl formal [BLOCK …]  the proofs
./run rtl cosim [TEST]      the hardware, as Verilator models, against the Rust crates
./run rtl bench [--check]   the figures in clocks from simulation, into docs/rtl.md; --check: against their bars, a line each
./run rtl synth [BLOCK …]   size and clock on an ECP5-85F; --write puts them into docs/rtl.md
./run rtl format            all sources in the one form that lint asks for"""


def main():
    from tool.places import VENV, alone
    from tool.setup import setup

    command, arguments = (sys.argv[1:2] or ["help"])[0], sys.argv[2:]
    if command not in ("setup", "lint", "test", "fast", "formal", "cosim", "bench", "synth", "format"):
        print(USAGE)
        return 0 if command in ("help", "-h", "--help") else 2
    with alone():
        setup()
    if Path(sys.prefix) != VENV:
        python = VENV / "bin" / "python"
        os.execv(python, [python, __file__, *sys.argv[1:]])
    if command == "setup":
        return 0
    from tool import check

    with alone():
        return getattr(check, command)(arguments)


if __name__ == "__main__":
    sys.exit(main())

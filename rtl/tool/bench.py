"""Figures and diagrams in clocks, from simulation alone, into docs/rtl.md; or figures against their bars."""

import json
import subprocess

from tool.places import CACHE, ROOT, Count, blocks
from tool.simulate import simulate

PAGE = ROOT / "docs" / "rtl.md"
LATENCIES = (1, 8)

# name, text, published, bar, whether more is better; what a run gives for it.
ROWS = [
    ("send", "send, messages of 64 KiB, % of 8 B a clock", "92.4", 98, True, lambda run: run["send"]),
    ("send_ethernet", "send, in Ethernet frames: preamble, header and FCS counted", "", 96, True, lambda run: run["send_ethernet"]),
    ("receive", "receive, the same", "83.4", 98, True, lambda run: run["receive_throughput"]),
    ("receive_dip", "receive: most that a doubled message loses, % (a dip at 2 KiB)", "dip", 0, False, lambda run: dip(run["receive_curve"])),
    ("send_90", "message for 90 % of the most, send, bytes", "4096", 1024, False, lambda run: least(run["send_curve"])),
    ("receive_90", "message for 90 % of the most, receive, bytes", "1024", 1024, False, lambda run: least(run["receive_curve"])),
    ("write_cached", "Write, doorbell to first payload word, STag looked up before, clocks", "44", 16, False, lambda run: run["write_cached"]),
    ("write_cold", "Write, the same, first look-up of the STag", "44", 24, False, lambda run: run["write_cold"]),
    ("read", "Read, doorbell to last header word", "21", 10, False, lambda run: run["read"]),
    ("receive_data", "received header to first data on the host bus", "60", 12, False, lambda run: run["receive"]),
    ("push", "PUSH, doorbell to first payload word", "73", 20, False, lambda run: run["push"]),
    ("botf", "BOTF, kick to first header word", "26", 6, False, lambda run: run["botf"]),
    ("aotf", "AOTF, store to first header word", "25.5", 4, False, lambda run: run["aotf"]),
]


def doubled(curve):
    return sorted((int(size), value) for size, value in curve.items() if int(size) & (int(size) - 1) == 0)


def dip(curve):
    values = [value for _, value in doubled(curve)]
    return max(0.0, *(before - after for before, after in zip(values, values[1:])))


def least(curve):
    most = max(curve.values())
    return min(size for size, value in doubled(curve) if value >= 0.9 * most)


def figures(latency):
    place = CACHE / f"figures-{latency}.json"
    place.unlink(missing_ok=True)
    block, = blocks(["rnic_exact"])
    count = Count()
    simulate(block, {"DATA_W": 64, "LATENCY": latency}, count, module="bench_rnic", extra={"RTL_FIGURES": place})
    if count.failed:
        raise SystemExit(1)
    return json.loads(place.read_text())


def shown(value):
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def bench(arguments):
    if "--check" in arguments:
        run, short = figures(1), 0
        for name, _, _, bar, more, of in ROWS:
            value = of(run)
            good = value >= bar if more else value <= bar
            short += not good
            print(f"{name} {shown(value)} {bar} {'ok' if good else 'short'}")
        return 1 if short else 0
    runs = [figures(latency) for latency in LATENCIES]
    lines = ["| figure, 64 bit | published | bar | L = 1 | L = 8 |", "|---|---|---|---|---|"]
    for _, text, published, bar, more, of in ROWS:
        lines.append(f"| {text} | {published} | {'>=' if more else '<='} {bar} | " + " | ".join(shown(of(run)) for run in runs) + " |")
    lines += ["", "Throughput over message size, % of 8 B a clock, L = 1:", "", "| bytes | send | receive |", "|---|---|---|"]
    sizes = sorted({int(size) for curve in ("send_curve", "receive_curve") for size in runs[0][curve]})
    for size in sizes:
        cells = (runs[0][curve].get(str(size)) for curve in ("send_curve", "receive_curve"))
        lines.append(f"| {size} | " + " | ".join("" if cell is None else shown(cell) for cell in cells) + " |")
    replace("figures", lines)
    replace("diagrams", [line for name, rows in runs[0]["diagrams"].items() for line in diagram(name, rows)])
    plot(runs[0], sizes)
    return 0


def diagram(name, rows):
    """Rows of what happened over clocks."""
    wide = max(len(row) for row in rows) + 1
    clocks = max(clock for row in rows.values() for clock in row) + 1
    scale = "".join(str(clock).ljust(5) for clock in range(0, clocks, 5))
    lines = ["```text", name.ljust(wide) + scale.rstrip()]
    order = sorted(rows.items(), key=lambda row: row[1][0])
    lines += [row.ljust(wide) + "".join("#" if clock in seen else "." for clock in range(clocks)) for row, seen in order]
    return [*lines, "```", ""]


def plot(run, sizes):
    """docs/rtl/throughput.svg, by the crate that draws the other pages' charts."""
    table = [["Throughput over message size, 64 bit", "bytes of a message", "% of 8 B a clock", "100"], ["send", "receive"]]
    table += [[str(size), *(str(run[curve].get(str(size), "")) for curve in ("send_curve", "receive_curve"))] for size in sizes]
    made = subprocess.run(
        ["cargo", "run", "--quiet", "--locked", "--package", "etherslot-chart", "--example", "draw"], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE,
        input="\n".join("\t".join(row) for row in table) + "\n",
    )
    place = PAGE.parent / "rtl" / "throughput.svg"
    place.parent.mkdir(exist_ok=True)
    place.write_text(made.stdout)
    print(f"docs/rtl/{place.name}")


def replace(name, lines):
    """Puts lines between the marks of this name in docs/rtl.md."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = PAGE.read_text().split(begin)
    _, after = rest.split(end)
    PAGE.write_text(before + begin + "\n".join(lines) + "\n" + end + after)
    print(f"docs/rtl.md: {name}")

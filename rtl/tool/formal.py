"""The proofs: a job of SymbiYosys for each block that has one."""

import shutil
import time

from tool.places import BIN, CACHE, RTL, run


def prove(block, count):
    plan = block.prove
    work = CACHE / "formal" / block.name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    sources = [*block.sources, *(RTL / source for source in plan["sources"])]
    for source in sources:
        shutil.copy(source, work)
    names = [source.name for source in sources]
    top = sources[-1].stem
    (work / f"{block.name}.sby").write_text(
        f"[options]\nmode bmc\ndepth {plan['depth']}\n\n[engines]\nsmtbmc z3\n\n[script]\n"
        f"read_slang --threads 1 --top {top} {' '.join(names)}\nprep -top {top}\nmemory_map\nopt -full\n\n[files]\n" + "\n".join(names) + "\n"
    )
    start = time.monotonic()
    status, output = run([BIN / "sby", "-f", f"{block.name}.sby"], cwd=work)
    count.add(f"proof {block.name}, to {plan['depth']} clocks", status == 0, output, time.monotonic() - start)

"""Verilates a block with one set of parameters and runs its tests under cocotb."""

import contextlib
import hashlib
import os
import shutil
import sys
import time
import traceback
import xml.etree.ElementTree

from tool.places import CACHE, RTL, environment

KEPT_MODELS = 60


def model(block, parameters):
    """The folder of the Verilated model; made anew if a source, a parameter or the tools have changed."""
    sources = block.harness + block.sources
    key = hashlib.sha256(repr((block.top, sorted(parameters.items()))).encode())
    for source in [*sources, RTL / "requirements.txt", RTL / "tool" / "simulate.py"]:
        key.update(source.read_bytes())
    return sources, CACHE / "models" / f"{block.name}-{key.hexdigest()[:16]}"


def simulate(block, parameters, count, module=None, extra=None):
    """Runs `module` of rtl/tb on the block. Each of its tests counts."""
    from cocotb_tools.runner import get_runner

    os.environ.update(environment())
    os.environ["OBJCACHE"] = str(RTL / "tool" / "objcache")
    # What runs once, like the constructor that names all signals, takes the compiler minutes if it optimises.
    os.environ["MAKEFLAGS"] = "OPT_FAST=-O1 OPT_GLOBAL=-O1 OPT_SLOW=-O0"
    sources, folder = model(block, parameters)
    name = " ".join([block.name, *(f"{key}={value}" for key, value in parameters.items())])
    log = folder / f"{module or block.tests}.log"
    start = time.monotonic()
    runner = get_runner("verilator")
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.xml"
    results.unlink(missing_ok=True)
    with open(log, "w") as out, redirected(out):
        try:
            runner.build(
                sources=sources, hdl_toplevel=block.top, parameters=parameters, build_dir=folder,
                always=not (folder / "built").exists(),
                build_args=["--assert", "--x-initial", "unique", "--x-assign", "unique", "-Wno-fatal"],
            )
            (folder / "built").touch()
            settings = {"COCOTB_RANDOM_SEED": "1", **{key: str(value) for key, value in (extra or {}).items()}}
            runner.test(
                hdl_toplevel=block.top, test_module=module or block.tests, build_dir=folder, test_dir=RTL / "tb",
                results_xml=str(results), extra_env=settings, parameters=parameters,
            )
        except (SystemExit, Exception):
            traceback.print_exc()
    if not results.exists():
        count.add(f"{name}: build or start", False, log.read_text()[-6000:])
        return None
    for case in xml.etree.ElementTree.parse(results).iter("testcase"):
        good = case.find("failure") is None and case.find("error") is None
        count.add(f"{name}: {case.get('name')}", good, log.read_text()[-6000:])
    print(f"     {name}: {time.monotonic() - start:.0f} s", flush=True)
    forget()
    return folder


def forget():
    """Old models go, so that the cache stays small."""
    folders = sorted((CACHE / "models").iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in folders[KEPT_MODELS:]:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def redirected(out):
    """All output, of child processes too, into a file."""
    sys.stdout.flush()
    saved = os.dup(1), os.dup(2)
    os.dup2(out.fileno(), 1)
    os.dup2(out.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for number in saved:
            os.close(number)

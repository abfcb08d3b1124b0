"""Models for crates/cosim: a block and its shim as a shared object that a Rust test loads."""

import hashlib
import os
import shutil
import subprocess

from tool.places import BIN, CACHE, ROOT, blocks, run, verilator_root


def library(name, parameters=()):
    """The shared object of the block's model; made anew if a source has changed."""
    block = blocks([name])[0]
    shim = ROOT / "crates" / "cosim" / "shim" / f"{name}.cpp"
    top = f"es_{name}"
    sources = [source for source in block.sources if source.parent.name != "tb"]
    key = hashlib.sha256(repr(sorted(parameters)).encode())
    for source in [*sources, shim]:
        key.update(source.read_bytes())
    folder = CACHE / "cosim" / f"{name}-{key.hexdigest()[:16]}"
    made = folder / f"{name}.so"
    if made.exists():
        return made
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    arguments = [f"-G{key}={value}" for key, value in parameters]
    status, output = run(
        [BIN / "verilator", "--cc", "--top-module", top, "--prefix", f"V{top}", "--Mdir", folder, "--assert", "--x-initial", "unique",
         "--x-assign", "unique", "-Wno-fatal", *arguments, *sources]
    )
    include = verilator_root() / "include"
    made_of = [*folder.glob("*.cpp"), include / "verilated.cpp", include / "verilated_threads.cpp", shim]
    if status == 0:
        status, output = run(
            ["g++", "-std=gnu++20", "-O1", "-fPIC", "-shared", "-pthread", "-I", folder, "-I", include, "-I", include / "vltstd", "-o", made, *made_of]
        )
    if status != 0:
        raise SystemExit(f"rtl: the model of {name} cannot be made\n{output}")
    return made


def cosim(arguments):
    # The bridge with a DC buffer, whose memory is in its shim.
    models = {"efe": (), "rnic": (), "peb_node": (("DC", 18),)}
    made = {**os.environ, **{f"ETHERSLOT_COSIM_{name.upper()}": str(library(name, parameters)) for name, parameters in models.items()}}
    command = ["cargo", "test", "--quiet", "--locked", "--package", "etherslot-cosim", "--", "--include-ignored", "--test-threads=2", *arguments]
    return subprocess.run(command, cwd=ROOT, env=made, check=False).returncode

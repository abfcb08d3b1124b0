"""What the commands do."""

import importlib
import json
import sys

from tool.bench import bench  # noqa: F401: a command
from tool.cosim import cosim
from tool.formal import prove
from tool.lint import form
from tool.lint import lint as lint_all
from tool.places import CACHE, RTL, Count, blocks
from tool.simulate import simulate
from tool.synth import synth


def lint(names):
    count = Count()
    lint_all(blocks(names), count)
    return count.end()


def format(_):
    status, output = form(write=True)
    print(output, end="")
    return status


def formal(names):
    count = Count()
    for block in blocks(names):
        if block.prove:
            prove(block, count)
    return count.end()


def tests(chosen, fast, count):
    for block in chosen:
        for parameters in block.parameters(fast) if block.tests else []:
            seen = CACHE / "coverage" / f"{block.name}.json"
            seen.parent.mkdir(parents=True, exist_ok=True)
            seen.unlink(missing_ok=True)
            simulate(block, parameters, count, extra={"RTL_COVERAGE": seen})
            if block.coverage:
                covered(block, parameters, seen, count)


def covered(block, parameters, seen, count):
    """Whether the tests brought about all that they have to."""
    sys.path.insert(0, str(RTL / "tb"))
    wanted = importlib.import_module(block.coverage).WANTED
    names = set(json.loads(seen.read_text())) if seen.exists() else set()
    missing = [name for name in wanted if name not in names]
    told = " ".join([block.name, *(f"{key}={value}" for key, value in parameters.items())])
    count.add(f"{told}: coverage, {len(wanted) - len(missing)} of {len(wanted)}", not missing, "never seen: " + "; ".join(missing))


def test(names):
    count, chosen = Count(), blocks(names)
    lint_all(chosen, count)
    tests(chosen, False, count)
    for block in chosen:
        if block.prove:
            prove(block, count)
    return count.end()


def fast(_):
    count, chosen = Count(), blocks()
    lint_all(chosen, count)
    tests(chosen, True, count)
    for block in chosen:
        if block.prove and not block.prove.get("slow"):
            prove(block, count)
    return count.end()

"""What the commands do."""

from tool.bench import bench  # noqa: F401: a command
from tool.cosim import cosim
from tool.formal import prove
from tool.lint import form
from tool.lint import lint as lint_all
from tool.places import Count, blocks
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
            simulate(block, parameters, count)


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

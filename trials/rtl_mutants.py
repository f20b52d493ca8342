"""Single changes of the RTL, and a copy of it that holds all of them, one of which can be chosen.

slang parses the sources; each expression that decides something is a site with its mutants. In
the instrumented copy a site reads ``(mutants_pkg::chosen == k ? changed : original)``, so that one
model of Verilator holds all mutants (mutation schemata) and none has to be built alone. `applied`
makes the same change in the text, for proofs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

PACKAGE = """package mutants_pkg;
    import "DPI-C" function int chosen_mutant();
    int chosen = chosen_mutant();
endpackage
"""

DRIVER = """
static int chosen = 0;
extern "C" int chosen_mutant() { return chosen; }
extern "C" void choose_mutant(int number) { chosen = number; }
"""
"""Appended to the C++ driver: a model asks when it is made."""

EXCHANGED = {
    "LogicalAndExpression": ("&&", "||"),
    "LogicalOrExpression": ("||", "&&"),
    "BinaryAndExpression": ("&", "|"),
    "BinaryOrExpression": ("|", "&"),
    "BinaryXorExpression": ("^", "|"),
    "EqualityExpression": ("==", "!="),
    "InequalityExpression": ("!=", "=="),
    "LessThanExpression": ("<", "<="),
    "LessThanEqualExpression": ("<=", "<"),
    "GreaterThanExpression": (">", ">="),
    "GreaterThanEqualExpression": (">=", ">"),
    "AddExpression": ("+", "-"),
    "SubtractExpression": ("-", "+"),
    "MultiplyExpression": ("*", "+"),
    "LogicalShiftLeftExpression": ("<<", ">>"),
    "LogicalShiftRightExpression": (">>", "<<"),
}
"""Kind of a binary expression -> its operator, and that of its mutant."""

OPERATORS = {
    "LogicalAndExpression": "condition",
    "LogicalOrExpression": "condition",
    "EqualityExpression": "condition",
    "InequalityExpression": "condition",
    "LessThanExpression": "bound",
    "LessThanEqualExpression": "bound",
    "GreaterThanExpression": "bound",
    "GreaterThanEqualExpression": "bound",
}
"""Kind of a binary expression -> what its mutants are called; others: arithmetic."""

CONSTANT = {
    "ParameterDeclaration", "ParameterDeclarationStatement", "ParameterPortList",
    "VariableDimension", "PackedDimension", "TypedefDeclaration", "ParameterValueAssignment",
    "AttributeInstance", "AttributeSpec", "SimpleRangeSelect", "BitSelect", "ElementSelect",
    "PackageDeclaration", "ElabSystemTask", "FunctionPrototype", "RangeDimensionSpecifier",
    "IntegerType", "LogicType", "EventControlWithExpression", "SignalEventExpression",
}  # fmt: skip
"""Kinds in which nothing is mutated: what must be constant, and what selects a bit by number."""

FUNCTIONS = {"$clog2", "$bits", "$error"}


@dataclass(frozen=True)
class Mutant:
    """A change of a file: the text between two offsets becomes another one."""

    file: str
    start: int
    end: int
    operator: str
    line: int
    before: str
    after: str

    @property
    def name(self) -> str:
        return (
            f"{self.file}:{self.line}+{self.start} {self.operator}: {self.before} -> {self.after}"
        )


def find_mutants(file: str, text: str) -> list[Mutant]:
    """Return the mutants of a SystemVerilog file, in the order of the text."""
    from pyslang import syntax

    root = syntax.SyntaxTree.fromText(text).root
    found: list[Mutant] = []

    def visit(node: Any) -> bool:
        if hasattr(node, "parent"):
            for start, end, operator, after in _changes(node, text):
                before = text[start:end]
                line = text.count("\n", 0, start) + 1
                if "\n" not in before or operator != "held":
                    found.append(Mutant(file, start, end, operator, line, before, after))
        return True

    root.visit(visit)
    return sorted(found, key=lambda mutant: (mutant.start, -mutant.end, mutant.operator))


def _kind(node: Any) -> str:
    return str(node.kind).rpartition(".")[2]


def _extent(node: Any) -> tuple[int, int]:
    return node.sourceRange.start.offset, node.sourceRange.end.offset


def _is_constant(node: Any) -> bool:
    """Whether a node stands where only a constant may stand, or on the left of an assignment."""
    child = node
    while (parent := child.parent) is not None:
        kind = _kind(parent)
        if kind in CONSTANT:
            return True
        inside = _extent(child)
        if kind == "CastExpression" and inside == _extent(parent.left):
            return True
        if kind == "MultipleConcatenationExpression" and inside == _extent(parent.expression):
            return True
        if kind in ("AscendingRangeSelect", "DescendingRangeSelect"):
            return True
        if kind == "IfGenerate" and inside == _extent(parent.condition):
            return True
        if kind in ("LoopGenerate", "ForLoopStatement"):
            block = parent.block if kind == "LoopGenerate" else parent.statement
            if inside != _extent(block):
                return True
        if kind == "StandardCaseItem" and inside[0] < _extent(parent.clause)[0]:
            return True
        if kind.endswith("AssignmentExpression") and inside == _extent(parent.left):
            return True
        if kind == "InvocationExpression" and str(parent.left).strip() in FUNCTIONS:
            return True
        child = parent
    return False


def _changes(node: Any, text: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield start, end, operator and new text of each mutant of a node."""
    kind = _kind(node)
    known = kind in EXCHANGED or kind in (
        "UnaryLogicalNotExpression", "UnaryBitwiseNotExpression", "ConditionalExpression",
        "ConditionalStatement", "IntegerLiteralExpression", "IntegerVectorExpression",
        "UnbasedUnsizedLiteralExpression", "CastExpression", "NonblockingAssignmentExpression",
    )  # fmt: skip
    if not known or _is_constant(node):
        return
    start, end = _extent(node)
    before = text[start:end]

    def of(part: Any) -> str:
        first, last = _extent(part)
        return text[first:last]

    if kind in EXCHANGED:
        left, right = of(node.left), of(node.right)
        operator = OPERATORS.get(kind, "arithmetic")
        yield start, end, operator, f"({left}) {EXCHANGED[kind][1]} ({right})"
        if kind in ("LogicalAndExpression", "LogicalOrExpression"):
            yield start, end, operator, f"({left})"
            yield start, end, operator, f"({right})"
    elif kind.startswith("Unary"):
        yield start, end, "condition", f"({of(node.operand)})"
    elif kind == "ConditionalExpression":
        yield start, end, "mux", f"({of(node.left)})"
        yield start, end, "mux", f"({of(node.right)})"
    elif kind == "ConditionalStatement":
        first, last = _extent(node.predicate)
        operator = "reset" if text[first:last] == "rst" else "condition"
        yield first, last, operator, "1'b0"
        if operator == "condition":
            yield first, last, operator, "1'b1"
    elif kind == "UnbasedUnsizedLiteralExpression" and before != "'x":
        operator = "reset" if _in_reset(node, text) else "constant"
        yield start, end, operator, {"'0": "'1", "'1": "'0"}[before]
    elif kind in ("IntegerLiteralExpression", "IntegerVectorExpression"):
        operator = "reset" if _in_reset(node, text) else "constant"
        yield (
            start,
            end,
            operator,
            f"({before} + 1)"
            if kind.startswith("IntegerL")
            else ("(~" + before + ")" if before.startswith("1'") else f"({before} + 1'b1)"),
        )
    elif kind == "CastExpression":
        width, value = of(node.left), of(node.right)[1:-1]
        if any(letter.isalpha() for letter in value):  # the highest bit that may be high is low
            top = f"({width} < $bits({value}) ? {width} : $bits({value})) - 1"
            yield start, end, "width", f"({before} & ~({width}'(1) << ({top})))"
    elif kind == "NonblockingAssignmentExpression" and not _in_reset(node, text):
        first, last = _extent(node.right)
        yield first, last, "held", of(node.left)


def _in_reset(node: Any, text: str) -> bool:
    """Whether a node belongs to what happens on a reset."""
    child = node
    while (parent := child.parent) is not None:
        if _kind(parent) == "ConditionalStatement":
            first, last = _extent(parent.predicate)
            if text[first:last] == "rst" and _extent(child) == _extent(parent.statement):
                return True
        child = parent
    return False


def applied(text: str, mutant: Mutant) -> str:
    """Return the text of a file with one change."""
    return text[: mutant.start] + mutant.after + text[mutant.end :]


def instrumented(text: str, numbered: Iterable[tuple[int, Mutant]]) -> str:
    """Return the text of a file that holds all these mutants, each with its number."""
    sites: dict[tuple[int, int], list[tuple[int, Mutant]]] = {}
    for number, mutant in numbered:
        sites.setdefault((mutant.start, mutant.end), []).append((number, mutant))
    opening: dict[int, list[tuple[int, str]]] = {}
    closing: dict[int, list[tuple[int, str]]] = {}
    for (start, end), mutants in sites.items():
        chain = "".join(f"mutants_pkg::chosen == {k} ? ({m.after}) : " for k, m in mutants)
        opening.setdefault(start, []).append((-end, f"({chain}("))
        closing.setdefault(end, []).append((-start, "))"))
    result, last = [], 0
    for place in sorted({*opening, *closing}):
        result.append(text[last:place])
        result += [piece for _, piece in sorted(closing.get(place, ()))]
        result += [piece for _, piece in sorted(opening.get(place, ()))]
        last = place
    # A function that reads a variable must be inlined.
    return "".join([*result, text[last:]]).replace("/* verilator no_inline_task */", "")

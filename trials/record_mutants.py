"""Mutants of files: one field of a record is changed, and what is proven of it is what it computes.

Takes files of small networks (batch 1 to 4) and of single operators, changes one field of their
headers in each copy (of the graph, its operators and types, of stages, plan, buffers, views,
records, metadata), and seals the copy as a whole file. Fields are found in the file itself, so a
new one joins by itself. Each mutant must be refused when it is read or verified, or not be proven,
or its run must equal the definition that was proven: that of its own graph, or of its own record.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

import vtaops
from trials import random_cases
from trials.campaign import Campaign, Result, result
from trials.random_graphs import RandomGraph, random_inputs
from vtaops import ops
from vtaops.base.errors import NotEquivalent, ShapeError, VTAError
from vtaops.base.records import Archive
from vtaops.graph import (
    AveragePool,
    Convolution,
    Dequantize,
    Graph,
    Quantize,
    Quotient,
    Requantization,
    Softmax,
    TfliteRequantization,
    operators,
)
from vtaops.graph.requantization import quantized_multiplier
from vtaops.model import Model, artefact
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program import Program, file_format

CONFIGS = ("pynq", "pynq_ext", "pynq_exact", "tiny", "4x8_i8w8a32_15_16_16_18")
INPUTS = 4
"""Inputs on which a proven mutant runs; one of them of extremes."""

UNREAD, UNVERIFIED, REFUTED, UNPROVEN = "refused on load", "not verified", "refuted", "not proven"
EQUAL, MISSED, CRASHED = "proven, equal", "MISSED", "CRASHED"
VERDICTS = (UNREAD, UNVERIFIED, REFUTED, UNPROVEN, EQUAL, MISSED, CRASHED)
"""What becomes of a mutant; the last two are failures: proven and different, and a raw error."""

WORDS: tuple[tuple[str, ...], ...] = (
    ("half_up", "truncate"),
    ("once", "twice"),
    ("int8", "uint8", "int16", "int32", "uint32", "int64", "float32", "bool"),
    ("input", "parameter", "output", "scratch", "constant"),
    ("vta", "host"),
    ("all", "units", "rest"),
    ("identity", "add", "sub", "multiply", "minimum", "maximum"),
    tuple(operators.__all__),
    tuple(ops.__all__),
    ("Flat", "Plus", "BlockDiagonal", "Patches", "KernelColumns", "Windows"),
    ("NCHW1n16c", "NHCW1n16c", "NCHW4n8c", "L16l", "C1n16c", "OIHW16o16i", "NCHW"),
    ("gelu", ""),
)
"""Words that mean something, by the fields in which they do."""

SCALINGS: dict[str, dict[str, Any]] = {
    "Requantization": {},
    "TfliteRequantization": {"rounds": "once"},
    "FineRequantization": {"nudge": 0, "fine": 2},
    "Quotient": {},
}
"""Fields of their own, of what converts sums to int8."""

LATER: dict[str, tuple[Any, ...]] = {
    "view": ({"record": "Plus", "value": 1}, {"record": "Flat"}, {"record": "KernelColumns"}),
    "fill": (0, 5),
    "offset": (0, 16),
    "value": ([1], [0] * 16),
    "activation": ("gelu",),
    "leaky_slope": (3,),
    "border": ([1, 1, 1, 1],),
    "axis": (1,),
}
"""Keys that some objects have, and others may get."""

ARRAY = {"record", "blob", "dtype", "shape"}
"""Keys of an entry whose numbers lie in a blob."""

# ------------------------------------------------------------------------------ documents


@dataclass
class Document:
    """An opened file: the header as plain data, and blobs.

    Attributes
    ----------
    archive : Archive
        The kind of file.
    header : dict
        The header.
    blobs : list of bytes
        The blobs.
    """

    archive: Archive
    header: dict[str, Any]
    blobs: list[Any]

    @staticmethod
    def of(archive: Archive, data: bytes) -> Document:
        """Open a file."""
        return Document(archive, *archive.opened(bytes(data)))

    def sealed(self) -> bytes:
        """Return the bytes of the file."""
        return self.archive.sealed(self.header, self.blobs)


# ------------------------------------------------------------------------------ mutations


@dataclass(frozen=True)
class Place:
    """A value in a document: the object that holds it, its key, and its path for people."""

    owner: Any
    key: Any
    path: tuple[str, ...]
    document: Document

    @property
    def value(self) -> Any:
        """The value."""
        return self.owner[self.key]

    @property
    def kind(self) -> tuple[str, ...]:
        """The path without the numbers of items."""
        return tuple(part for part in self.path if not part.isdecimal())


def places(document: Document) -> Iterator[Place]:
    """Yield every value of the header of a document, whole objects and lists included."""
    yield from _below(document.header, "fingerprint", ("fingerprint",), document)
    for name in document.header["content"]:
        yield from _below(document.header["content"], name, (name,), document)


def _below(owner: Any, key: Any, path: tuple[str, ...], document: Document) -> Iterator[Place]:
    yield Place(owner, key, path, document)
    value = owner[key]
    if isinstance(value, dict):
        said = value.get("record", "")
        for name in value:
            part = f"{said}.{name}" if isinstance(said, str) else name
            yield from _below(value, name, (*path, part), document)
    elif isinstance(value, list) and len(value) <= 64:
        for number in range(len(value)):
            yield from _below(value, number, (*path, str(number)), document)


def mutated(document: Document, rng: random.Random) -> tuple[Document, str] | None:
    """Return a copy with one field changed, and what was; None if nothing could be."""
    copy = Document(document.archive, deepcopy(document.header), [*map(bytes, document.blobs)])
    groups: dict[str, dict[tuple[str, ...], list[Place]]] = {}
    for place in places(copy):
        kind = place.kind
        group = " ".join(kind[:2]) if kind[0] == "stages" else kind[0]
        groups.setdefault(group, {}).setdefault(kind, []).append(place)
    group = groups[rng.choice(sorted(groups))]
    same = group[rng.choice(sorted(group))]
    place = rng.choice(same)
    old = deepcopy(place.value)
    change = _exchanged if len(same) > 1 and rng.random() < 0.15 else _changed
    told = change(place, same, rng)
    if place.value == old and type(place.value) is type(old) and told is None:
        return None
    what = f"{'/'.join(place.path)}: {old!r:.60} -> {place.value!r:.60}"
    return copy, what if told is None else f"{'/'.join(place.path)}: {told}"


def _exchanged(place: Place, same: list[Place], rng: random.Random) -> str | None:
    """Exchange a value with that of another place of its kind."""
    other = rng.choice(same)
    place.owner[place.key], other.owner[other.key] = other.value, place.value
    return None


def _changed(place: Place, same: list[Place], rng: random.Random) -> str | None:
    value = place.value
    if isinstance(value, dict) and value.keys() == ARRAY and rng.random() < 0.7:
        return _content(value, place.document, rng)
    if rng.random() < 0.04:
        place.owner[place.key] = rng.choice([None, 0, 1, [], {}, "gelu", True, 1.5, [1, 1]])
        return None
    match value:
        case bool():
            place.owner[place.key] = not value
        case int():
            place.owner[place.key] = _number(value, rng)
        case float():
            place.owner[place.key] = rng.choice(
                [2 * value, value / 2, -value, 0.0, 1e300, value + 1, 2.0**-140]
            )
        case str():
            place.owner[place.key] = _word(value, same, rng)
        case None:
            place.owner[place.key] = rng.choice([0, 1, 7, [0, 1], [1, 0], [], False, [5, 90]])
        case dict() if value.get("record") in SCALINGS and rng.random() < 0.4:
            _of_another_class(value, rng)
        case list():
            _items(value, rng)
        case dict():
            _keys(value, rng)
    return None


def _of_another_class(scaling: dict[str, Any], rng: random.Random) -> None:
    """Let a requantization round in another way, with the numbers that it can keep."""
    record = rng.choice([name for name in SCALINGS if name != scaling["record"]])
    shared = ("clip",) if record == "Quotient" else ("multiplier", "shift", "zero_point", "clip")
    kept = {name: scaling[name] for name in shared if name in scaling}
    scaling.clear()
    scaling |= {"record": record, **kept, **SCALINGS[record]}


def _word(old: str, same: list[Place], rng: random.Random) -> str:
    """Return another word: one of the same meaning most of the time, or of the same field."""
    others = [p.value for p in same if isinstance(p.value, str)]
    alike = [word for group in WORDS if old in group for word in group]
    pool = rng.choice([alike, alike, others, rng.choice(WORDS)])
    found = [word for word in pool if word != old]
    return rng.choice(found) if found else f"{old}_"


def _number(old: int, rng: random.Random) -> int:
    near = [old - 1, old + 1, old + 2, 2 * old, old // 2, -old, 0, 1, 2, 3, 16, 128]
    far = [-1, 127, -128, 255, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 40]
    return rng.choice([n for n in (near if rng.random() < 0.8 else far) if n != old])


def _items(value: list[Any], rng: random.Random) -> None:
    """Change the items of a list."""
    if not value:
        value.append(rng.choice([0, 1, "gelu", [0, 1]]))
        return
    first, second = rng.randrange(len(value)), rng.randrange(len(value))
    match rng.randrange(5):
        case 0:
            del value[first]
        case 1:
            value.insert(second, deepcopy(value[first]))
        case 2:
            value[first], value[second] = value[second], value[first]
        case 3:
            value.reverse()
        case 4:
            value.append(deepcopy(value[first]))


def _keys(value: dict[str, Any], rng: random.Random) -> None:
    """Change the keys of an object: one less, one more, one of another name."""
    name = rng.choice(sorted(value)) if value else ""
    match rng.randrange(3 if value else 1):
        case 0:
            added = rng.choice([*LATER])
            value[added] = deepcopy(rng.choice(LATER[added]))
        case 1:
            del value[name]
        case 2:
            value[f"{name}_"] = value.pop(name)


def _content(entry: dict[str, Any], document: Document, rng: random.Random) -> str:
    """Change one number of a blob."""
    numbers = np.frombuffer(document.blobs[entry["blob"]], entry["dtype"]).copy()
    if not numbers.size or numbers.dtype.kind not in "iu":
        return "nothing"
    index = rng.randrange(numbers.size)
    old, limits = int(numbers[index]), np.iinfo(numbers.dtype)
    wanted = _number(old, rng)
    numbers[index] = min(max(wanted, int(limits.min)), int(limits.max))
    document.blobs[entry["blob"]] = numbers.tobytes()
    return f"number {index}: {old} -> {numbers[index]}"


# ------------------------------------------------------------------------------ subjects


class SmallGraph(RandomGraph):
    """A network of a few operators, of batch 1 to 4, some of which round as other frameworks do."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"records {seed}")
        self.np = np.random.default_rng(seed)
        self.free, self.wide, self.views = self.rng.random() < 0.5, True, self.rng.random() < 0.5
        self.graph = Graph(f"records_{seed}")
        self.batch, size = self.rng.randint(1, 4), (self.rng.randint(2, 5), self.rng.randint(2, 5))
        self.values = []
        for number in range(self.rng.randint(1, 2)):
            shape = (self.batch, self.rng.choice([3, 8, 16, self.rng.randint(1, 20)]), *size)
            self.values.append(self.graph.input(f"x{number}", shape, zero_point=self.zero_point()))
        for _ in range(40):
            if len(self.graph.nodes) >= 4:
                break
            self.grow()
        self.finish()

    def grow(self) -> None:
        if self.rng.random() < 0.7:
            return super().grow()
        try:
            kinds = [self.quotient, self.tflite, self.softmax, self.long]
            self.values.append(self.rng.choice(kinds)())
        except ShapeError:
            return None
        return None

    def large_pool(self) -> None:
        """Images here are small."""

    def quotient(self) -> Any:
        x = self.pick()
        _, _, height, width = x.shape
        whole = self.rng.random() < 0.5
        kernel = None if whole else (self.rng.randint(1, height), self.rng.randint(1, width))
        rows, columns = kernel or (height, width)
        padding = (0, 0, 0, 0) if whole else (rows // 2, columns // 2, 0, 0)
        pool = AveragePool(
            kernel=kernel,
            padding=padding,
            dilation=(1, 1) if whole else self.rng.choice([(1, 1), (1, 2), (2, 2)]),
            exclude_padding=not whole,
            requantization=Quotient(),
        )
        return self.graph.add(pool, x)

    def tflite(self) -> Any:
        x, channels = self.pick(), self.rng.choice([8, 16])
        multiplier, shift = quantized_multiplier(self.rng.uniform(0.0005, 0.01))
        rounds = self.rng.choice(["once", "twice"])
        scaling = TfliteRequantization(multiplier, shift, self.zero_point(), rounds=rounds)
        weights = self.weights(channels, x.shape[1], 1, 1)
        return self.graph.add(Convolution(weights, self.bias(channels), scaling), x)

    def long(self) -> Any:
        """Shifts by more than 31, where roundings differ, of sums that large biases make."""
        x = self.pick()
        weights = self.weights(16, x.shape[1], 1, 1)
        bias = self.np.integers(-25_000_000, 25_000_000, 16).astype(np.int32)
        scaling = Requantization(40000, 33, self.zero_point())
        return self.graph.add(Convolution(weights, bias, scaling), x)

    def softmax(self) -> Any:
        real = self.graph.add(Dequantize(), self.pick())
        return self.graph.add(Quantize(1 / 256, -128), self.graph.add(Softmax(), real))

    def finish(self) -> None:
        unread = [t for t in self.values if not self.graph.consumers(t)] or self.values[-1:]
        for tensor in unread[:3]:
            self.graph.output(tensor)


FAMILIES = {
    "conv2d": random_cases.random_conv2d,
    "gemm": random_cases.random_gemm,
    "scaled": random_cases.random_scaled,
    **random_cases.FAMILIES,
}


def network(seed: int) -> Document | None:
    """Return the file of a small network; None if it does not compile, or not to what is proven."""
    rng = random.Random(seed)
    try:
        graph, config = SmallGraph(seed).graph, rng.choice(CONFIGS)
        model = vtaops.compile_model(graph, config, pin_weights=seed % 3 == 0)
        data = artefact.dumps(model)
    except VTAError:
        return None
    return Document.of(artefact._FILE, data) if model.regions else None


def operator(seed: int) -> Document | None:
    """Return the file of a random operator; None if no tile fits."""
    rng = random.Random(f"record {seed}")
    op = FAMILIES[rng.choice([*FAMILIES])](rng)
    scaled = getattr(op, "scales", False) or getattr(op, "scaling", False)
    fine = getattr(op, "fine", 0)
    config = "pynq_exact" if fine else "pynq_ext" if scaled else rng.choice(CONFIGS)
    try:
        program = vtaops.compile(op, config, capabilities="fsim")
    except VTAError:
        return None
    if len(program) > 2000:
        return None
    return Document.of(file_format._FILE, file_format.dumps(program))


# ------------------------------------------------------------------------------- verdicts


def judge(document: Document, seed: int) -> tuple[str, str]:
    """Return the verdict on a file, and the reason."""
    whole = document.archive is artefact._FILE
    load: Callable[[bytes], Any] = artefact.loads if whole else file_format.loads
    try:
        subject = load(document.sealed())
    except VTAError as error:
        return UNREAD, str(error)
    except Exception as error:
        return CRASHED, f"load: {error!r:.300}"
    try:
        subject.verify()
    except VTAError as error:
        return UNVERIFIED, str(error)
    except Exception as error:
        return CRASHED, f"verify: {error!r:.300}"
    try:
        proof = subject.prove(seed=seed)
    except NotEquivalent as error:
        return REFUTED, str(error)
    except Exception as error:
        return CRASHED, f"prove: {error!r:.300}"
    if not proof.complete:
        return UNPROVEN, "; ".join(proof.unproven)
    compare = _network_differs if isinstance(subject, Model) else _operator_differs
    try:
        reason = compare(subject, seed)
    except Exception as error:
        reason = f"no run: {error!r:.300}"
    return (MISSED, reason) if reason else (EQUAL, "")


def _network_differs(model: Model, seed: int) -> str:
    """Return how runs of a model differ from its graph; empty if they do not."""
    for number in range(INPUTS):
        arrays = random_inputs(model.graph, seed + number)
        if number == 0:
            arrays = [_extreme(array, seed) for array in arrays]
        found, wanted = model.run(*arrays), model.reference(*arrays)
        if reason := _different(found, wanted):
            return reason
    return ""


def _operator_differs(program: Program, seed: int) -> str:
    """Return how runs of a program differ from the operator in its record."""
    (record,) = program.operators
    op = getattr(ops, record.kind)(**record.parameters)
    rng = np.random.default_rng(seed)
    for number in range(INPUTS):
        arrays = random_arguments(op, rng)
        if number == 0:
            arrays = [a if a.dtype != np.int8 else _extreme(a, seed) for a in arrays]
        if reason := _different(program.run("fsim", *arrays), evaluate(op, arrays)):
            return reason
    return ""


def _extreme(array: Any, seed: int) -> Any:
    ends = np.array([-128, 127], np.int8)
    return np.random.default_rng(seed).choice(ends, array.shape).astype(array.dtype)


def _different(found: Any, wanted: Any) -> str:
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True)
    for number, (a, b) in enumerate(pairs):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"result {number} is {a.dtype}{[*a.shape]}, not {b.dtype}{[*b.shape]}"
        if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            return f"{int((a != b).sum())} of {a.size} values of result {number} differ"
    return ""


def mutants(case: str, count: int) -> Iterator[tuple[str, str, str]]:
    """Yield change, verdict and reason of the mutants of a case: ``network 7``, ``operator 7``.

    A case that is not proven has none; one that is and differs yields itself, with no change.
    """
    kind, number = case.split()
    document = {"network": network, "operator": operator}[kind](int(number))
    verdict, reason = (UNPROVEN, "") if document is None else judge(document, int(number))
    if verdict in (MISSED, CRASHED):
        yield "", verdict, reason
    if verdict != EQUAL or document is None:
        return
    rng = random.Random(f"{case} mutants")
    for _ in range(count):
        found = mutated(document, rng)
        if found is not None:
            yield found[1], *judge(found[0], rng.getrandbits(20))


MUTANTS = 60
"""Of each file."""


def trial(case: str) -> Result:
    """Judge the mutants of one file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [*mutants(case, MUTANTS)]
    counted = Counter(verdict for change, verdict, _ in found if change)
    failed = [f"{v}: {change}: {why}" for change, v, why in found if v in (MISSED, CRASHED)]
    row = {verdict: counted[verdict] for verdict in VERDICTS}
    return result(
        case.split()[0] + "s", failed, files=bool(counted), mutants=counted.total(), **row
    )


CAMPAIGN = Campaign(
    lambda count: [f"{kind} {n}" for n in range(count) for kind in ("network", "operator")],
    trial,
    count=200,
)

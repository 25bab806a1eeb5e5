# SPDX-License-Identifier: MIT
"""The results of `replay cluster`: reading, checking, and what is compared with what.

An experiment has dimensions (model, placement, strategy ...), and a case for each combination of
their labels. One dimension is compared; a job under one label of each other dimension is a cell,
within which the labels of the compared dimension differ and nothing else.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class ResultsError(Exception):
    """What is wrong with an input, and where: one sentence for the person at the terminal."""


# Reading ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A value in a file, and where it is."""

    value: Any
    file: Path
    path: str = ""

    def error(self, complaint: str) -> ResultsError:
        return ResultsError(f"{self.file}: {self.path or 'the file'}: {complaint}")

    def _is(self, expected: type | tuple[type, ...], name: str) -> Any:
        # In Python a bool is an int; in JSON it is not.
        if not isinstance(self.value, expected) or (isinstance(self.value, bool) and expected is not bool):
            found = "null" if self.value is None else json.dumps(self.value)[:40]
            raise self.error(f"is {found}, expected {name}")
        return self.value

    def __getitem__(self, key: str) -> Node:
        if key not in self._is(dict, "an object"):
            raise self.at(key).error("is missing")
        return self.at(key)

    def get(self, key: str) -> Node | None:
        """Of what may be missing, or null."""
        return self.at(key) if self._is(dict, "an object").get(key) is not None else None

    def at(self, key: str) -> Node:
        return Node(self.value.get(key), self.file, f"{self.path}.{key}" if self.path else key)

    def items(self) -> list[tuple[str, Node]]:
        return [(key, self.at(key)) for key in self._is(dict, "an object")]

    def elements(self, count: int | None = None) -> list[Node]:
        values = self._is(list, "a list")
        if count is not None and len(values) != count:
            raise self.error(f"has {len(values)} elements, expected {count}")
        return [Node(value, self.file, f"{self.path}[{i}]") for i, value in enumerate(values)]

    def text(self) -> str:
        return str(self._is(str, "a text"))

    def flag(self) -> bool:
        return bool(self._is(bool, "true or false"))

    def number(self) -> float:
        value = float(self._is((int, float), "a number"))
        if not math.isfinite(value):
            raise self.error("is not finite")
        return value

    def above_zero(self) -> float:
        if self.number() <= 0:
            raise self.error(f"is {self.value}, expected more than 0")
        return float(self.value)

    def numbers(self) -> list[float]:
        return [element.number() for element in self.elements()]


def read_json(file: Path) -> Node:
    try:
        return Node(json.loads(file.read_text(encoding="utf-8")), file)
    except OSError as error:
        raise ResultsError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ResultsError(f"{file}: is not a text") from None
    except json.JSONDecodeError as error:
        raise ResultsError(f"{file}:{error.lineno}: is not JSON: {error.msg}") from None


# What is in it ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """A quantity over the repeats of a case."""

    median: float
    min: float
    max: float

    @staticmethod
    def read(node: Node) -> Spread:
        return Spread(node["median"].number(), node["min"].number(), node["max"].number())


@dataclass(frozen=True)
class Layer:
    name: str
    bytes: float


@dataclass(frozen=True)
class Job:
    name: str
    model: str
    bytes: float
    layers: list[Layer]
    compute_ms: float
    wire_ms: float
    bound_ms: float  # with the changes of rate that the case has
    order_ms: float  # what the order of the layers allows at best, at least the bound; else the bound
    iteration_ms: Spread  # over the repeats, of the mean of each
    iterations_ms: list[float]  # all measured ones

    @property
    def time(self) -> float:
        return self.iteration_ms.median

    @property
    def over_bound(self) -> float:
        return self.time / self.bound_ms

    @staticmethod
    def read(name: str, node: Node) -> Job:
        bound = node["bound"]
        layers = [layer.elements(4) for layer in node["layers"].elements()]
        time = node["iteration_ms"]
        bound_ms = (bound.get("with_rate_changes_ms") or bound["total_ms"]).above_zero()
        order = bound.get("order_ms")
        time["median"].above_zero()
        return Job(
            name,
            node["model"].text(),
            node["bytes"].number(),
            [Layer(layer[0].text(), layer[1].number()) for layer in layers],
            bound["compute_ms"].number(),
            bound["wire_ms"].number(),
            bound_ms,
            max(bound_ms, order.number()) if order else bound_ms,
            Spread.read(time),
            [time for repeat in node["iterations_ms"].elements() for time in repeat.numbers()],
        )


Interval = tuple[int, float, float]  # layer, start and end in ms from the start of the iteration


@dataclass(frozen=True)
class Timeline:
    """A typical iteration of a worker: backward pass, then the next forward pass."""

    iteration_ms: float
    backward: list[Interval]
    forward: list[Interval]
    wire: list[tuple[float, float, float]]  # until ms: bytes sent and received since the row before

    @property
    def waits(self) -> list[Interval]:
        """When the worker could not compute, and which layer it had to wait for."""
        ready = max((end for _, _, end in self.backward), default=0.0)
        waits = []
        for layer, start, end in sorted(self.forward, key=lambda span: span[1]):
            if start - ready > 1e-3:
                waits.append((layer, ready, start))
            ready = end
        return waits

    @staticmethod
    def read(node: Node, layers: int) -> Timeline:
        def intervals(key: str) -> list[Interval]:
            result = []
            for row in node[key].elements():
                layer, start, end = row.elements(3)
                if layer.number() not in range(layers):
                    raise layer.error(f"is {layer.value}, expected a layer from 0 to {layers - 1}")
                result.append((int(layer.number()), start.number(), end.number()))
            return result

        wire = []
        for row in node["wire"].elements():
            until, sent, received = (cell.number() for cell in row.elements(3))
            wire.append((until, sent, received))
        return Timeline(node["iteration_ms"].above_zero(), intervals("backward"), intervals("forward"), wire)


@dataclass(frozen=True)
class Case:
    name: str
    labels: dict[str, str]
    variant: str  # of a sweep within the labels; "" if there is none
    settings: dict[str, Any]
    error: str | None = None  # then all that follows is empty
    jobs: dict[str, Job] = field(default_factory=dict)
    background: dict[str, Spread] = field(default_factory=dict)  # goodput in Gbit/s
    counts: dict[str, Spread] = field(default_factory=dict)  # retransmits, timeouts, drops
    timelines: dict[str, Timeline] = field(default_factory=dict)  # by job

    @staticmethod
    def read(node: Node, dimensions: dict[str, list[str]]) -> Case:
        labels = {}
        for dimension, allowed in dimensions.items():
            label = node["labels"][dimension]
            if label.text() not in allowed:
                raise label.error(f'is "{label.value}", which dimensions.{dimension} does not have')
            labels[dimension] = label.text()
        settings = node["settings"]
        settings.items()
        head = (node["name"].text(), labels, node["variant"].text(), settings.value)
        if (error := node.get("error")) is not None:
            return Case(*head, error=error.text())

        jobs = {name: Job.read(name, job) for name, job in node["jobs"].items()}
        background = {
            name: Spread.read(flow["goodput_gbit"]) for name, flow in optional_items(node, "background")
        }
        counts = {}
        for name in ("retransmits", "timeouts", "drops"):
            if (count := node.get(name)) is not None:
                counts[name] = Spread.read(count)
        timelines = {}
        for name, timeline in optional_items(node, "timeline"):
            if name not in jobs:
                raise timeline.error("is of a job that this case does not have")
            timelines[name] = Timeline.read(timeline, len(jobs[name].layers))
        return Case(*head, None, jobs, background, counts, timelines)


def optional_items(node: Node, key: str) -> list[tuple[str, Node]]:
    child = node.get(key)
    return [] if child is None else child.items()


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    description: str
    file: str  # that it was made from
    virtual_time: bool
    complete: bool
    dimensions: dict[str, list[str]]
    compare: str  # dimension
    baseline: str  # label of it
    x: str | None  # dimension
    cases: list[Case]

    @property
    def failed(self) -> list[Case]:
        return [case for case in self.cases if case.error is not None]

    @property
    def ours(self) -> str | None:
        """The label that the comparison is about."""
        return next((label for label in self.dimensions[self.compare] if label.startswith("mercury")), None)

    @property
    def missing(self) -> int:
        """Combinations of labels without any case yet."""
        have = {tuple(case.labels[dimension] for dimension in self.dimensions) for case in self.cases}
        return math.prod(map(len, self.dimensions.values())) - len(have)

    def other_dimensions(self) -> list[str]:
        return [dimension for dimension in self.dimensions if dimension != self.compare]


def load(file: Path) -> Experiment:
    root = read_json(file)
    dimensions = {
        name: [label.text() for label in labels.elements()] for name, labels in root["dimensions"].items()
    }
    cases = [Case.read(case, dimensions) for case in root["cases"].elements()]
    if not dimensions:
        # A single case is compared with nothing.
        dimensions = {"case": list(dict.fromkeys(case.name for case in cases)) or ["none"]}
        for case in cases:
            case.labels["case"] = case.name
    compare, baseline, x = read_report(root["report"], dimensions)
    return Experiment(
        root["experiment"].text(),
        root["title"].text(),
        root["description"].text(),
        root["file"].text(),
        root["virtual_time"].flag(),
        root["complete"].flag(),
        dimensions,
        compare,
        baseline,
        x,
        cases,
    )


def read_report(node: Node, dimensions: dict[str, list[str]]) -> tuple[str, str, str | None]:
    """What is compared, its baseline, and what a curve is over. The experiment need not say."""

    def choice(key: str, allowed: list[str], otherwise: str) -> str:
        child = node.get(key)
        if child is None or child.text() == "":
            return otherwise
        if child.text() not in allowed:
            raise child.error(f'is "{child.value}", expected one of {", ".join(allowed)}')
        return child.text()

    names = list(dimensions)
    compare = choice("compare", names, "strategy" if "strategy" in names else names[-1])
    baseline = choice("baseline", dimensions[compare], dimensions[compare][0])
    x = choice("x", names, "") or None
    return compare, baseline, x


# What is compared -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What one label of the compared dimension did in a cell, at its best variant."""

    case: Case
    job: Job
    variants: list[tuple[Case, Job]]  # all that ran, this one included

    @property
    def timeline(self) -> Timeline | None:
        return self.case.timelines.get(self.job.name)


def words(dimension: str) -> str:
    return dimension.replace("_", " ")


def is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Cell:
    labels: dict[str, str]  # of the other dimensions
    job: str
    outcomes: dict[str, Outcome]  # by label of the compared dimension, in its order
    failures: dict[str, list[Case]]

    @property
    def bound_ms(self) -> float:
        """A strategy with more bytes to send has a higher bound of its own; this is the cell's."""
        return min(outcome.job.bound_ms for outcome in self.outcomes.values())

    def title(self, several_jobs: bool) -> str:
        # "4" says nothing, "wire to compute 4" does.
        parts = [
            f"{words(dimension)} {label}" if is_number(label) else label
            for dimension, label in self.labels.items()
        ]
        if several_jobs:
            parts.append(f"job {self.job}")
        return ", ".join(parts) or "all"


def cells(experiment: Experiment) -> list[Cell]:
    """In the order of the file. Cells without any result are left out."""
    others = experiment.other_dimensions()
    by_labels: dict[tuple[str, ...], list[Case]] = {}
    for case in experiment.cases:
        by_labels.setdefault(tuple(case.labels[other] for other in others), []).append(case)

    def position(key: tuple[str, ...]) -> list[int]:
        return [experiment.dimensions[other].index(label) for other, label in zip(others, key)]

    result = []
    for key in sorted(by_labels, key=position):
        cases = by_labels[key]
        jobs = list(dict.fromkeys(name for case in cases for name in case.jobs))
        for job in jobs:
            result.append(cell_of(experiment, dict(zip(others, key)), job, cases))
    return result


def cell_of(experiment: Experiment, labels: dict[str, str], job: str, cases: list[Case]) -> Cell:
    outcomes = {}
    failures = {}
    for label in experiment.dimensions[experiment.compare]:
        own = [case for case in cases if case.labels[experiment.compare] == label]
        ran = [(case, case.jobs[job]) for case in own if job in case.jobs]
        if ran:
            best, best_job = min(ran, key=lambda pair: pair[1].time)
            outcomes[label] = Outcome(best, best_job, ran)
        if failed := [case for case in own if case.error is not None]:
            failures[label] = failed
    return Cell(labels, job, outcomes, failures)


def speed_up(cell: Cell, label: str, baseline: str) -> float | None:
    """How many times as fast as the baseline; nothing if either has no result."""
    if label not in cell.outcomes or baseline not in cell.outcomes:
        return None
    return cell.outcomes[baseline].job.time / cell.outcomes[label].job.time


ALONE = "alone"


def over_alone(cell: Cell, label: str, all_cells: list[Cell]) -> float | None:
    """The time as a multiple of that of the same job where one dimension says "alone", for
    experiments that have such a label. Nothing for those that are alone."""
    outcome = cell.outcomes.get(label)
    if outcome is None or ALONE in cell.labels.values():
        return None
    for other in all_cells:
        differing = [other.labels[key] for key, value in cell.labels.items() if other.labels[key] != value]
        if differing == [ALONE] and other.job == cell.job and label in other.outcomes:
            return outcome.job.time / other.outcomes[label].job.time
    return None

# SPDX-License-Identifier: GPL-2.0
"""The report of cluster experiments, from made-up results (sample.py)."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import cluster_results
import report_cluster
import sample
from cluster_results import Interval, Timeline

VOID = {"meta", "br", "hr", "img", "link", "input"}
LEAVES_OPEN = {"path", "use", "rect", "circle", "line"}  # SVG, closed by "/>"


class Checker(HTMLParser):
    """Complains about what a browser would have to guess or fetch."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.problems: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        self.problems += [f"<{tag}> is not closed" for tag in self.open]
        self.problems += [f"id {name} twice" for name in set(self.ids) if self.ids.count(name) > 1]
        self.problems += [f"no id {name}" for name in set(self.targets) - set(self.ids)]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in ("script", "link", "iframe", "object", "embed", "img", "image", "foreignobject"):
            self.problems.append(f"<{tag}>")
        names = [name for name, _ in attributes]
        if len(names) != len(set(names)):
            self.problems.append(f"<{tag}> has an attribute twice: {names}")
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "xlink:href"):
                self.refer(value or "", tag)
            if name in ("src", "srcset", "background", "action", "poster") or name.startswith("on"):
                self.problems.append(f"<{tag} {name}={value}>")
            for address in re.findall(r"url\(([^)]*)\)", value or ""):
                self.refer(address, tag)

    def refer(self, address: str, tag: str) -> None:
        if address.startswith("#"):
            self.targets.append(address[1:])
        else:
            self.problems.append(f"<{tag}> refers to {address}")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["style"]:
            if "url(" in data or "@import" in data:
                self.problems.append("the style sheet refers to something")
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def load(results: dict[str, Any], folder: Path) -> cluster_results.Experiment:
    file = folder / "results.json"
    file.write_text(json.dumps(results), encoding="utf-8")
    return cluster_results.load(file)


@pytest.fixture
def page_of(tmp_path: Path) -> Callable[..., Checker]:
    def make(*results: dict[str, Any]) -> Checker:
        text = report_cluster.document([load(one, tmp_path) for one in results])
        checker = Checker(text)
        assert checker.problems == []
        assert not re.search(r"https?:|src=|@import", text)
        return checker

    return make


@pytest.fixture
def findings_of(tmp_path: Path) -> Callable[[dict[str, Any]], str]:
    return lambda results: " ".join(report_cluster.Page(load(results, tmp_path), 1).findings())


def set_time(results: dict[str, Any], ms: float, **labels: str) -> None:
    """Of all variants of the cases that have these labels."""
    for case in results["cases"]:
        if labels.items() <= case["labels"].items() and "jobs" in case:
            for job in case["jobs"].values():
                job["iteration_ms"] = sample.spread([ms])
                job["bound"]["total_ms"] = 100.0


def flat(results: dict[str, Any], ms: float = 150.0) -> dict[str, Any]:
    """All times equal, all bounds 100 ms."""
    set_time(results, ms)
    return results


# The page ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [sample.models, sample.ratio, sample.shared])
def test_page_is_whole_and_needs_nothing_else(
    make: Callable[[], dict[str, Any]], page_of: Callable[..., Checker]
) -> None:
    checker = page_of(make())
    assert checker.tags.count("h1") == 1
    assert checker.tags.count("svg") > 0


def test_every_case_is_on_the_page(page_of: Callable[..., Checker]) -> None:
    results = sample.models()
    text = page_of(results).text
    for case in results["cases"]:
        assert case["name"] in text
        if "error" in case:
            assert case["error"] in text
        else:
            time = case["jobs"]["job"]["iteration_ms"]
            middle, low, high = (report_cluster.ms(time[key]) for key in ("median", "min", "max"))
            assert f"{middle} {low} to {high}" in text
    assert results["title"] in text
    assert "scripts/cluster tests/bench/experiments/models.toml" in text
    assert "network.rate 10gbit" in text


def test_a_picture_for_each_cell(page_of: Callable[..., Checker]) -> None:
    # Two models, two placements: bars, distributions and timelines of each.
    assert page_of(sample.models()).tags.count("svg") == 4 * 3
    # Five ratios, and two curves.
    assert page_of(sample.ratio()).tags.count("svg") == 5 * 3 + 2
    # Two cells with one job and one with two, of which only the first has a timeline.
    assert page_of(sample.shared()).tags.count("svg") == 4 * 2 + 3


def test_several_experiments_share_a_page(page_of: Callable[..., Checker]) -> None:
    checker = page_of(sample.models(), sample.ratio(), sample.shared())
    assert checker.tags.count("h1") == 3
    for title in ("The models experiment", "The ratio experiment", "The shared experiment"):
        assert title in checker.text


def test_pictures_take_their_colours_from_the_page(tmp_path: Path) -> None:
    text = report_cluster.document([load(sample.models("small"), tmp_path)])
    style, body = text.split("</style>", 1)
    assert "prefers-color-scheme: dark" in style
    for name, (light, dark) in report_cluster.figures.THEME.items():
        assert style.count(f"--{name}: {light};") == 1
        assert style.count(f"--{name}: {dark};") == 1
        assert light not in body
    for name in set(re.findall(r"var\(--([a-z0-9-]+)\)", text)):
        assert f"--{name}: " in style


def test_same_input_same_page(tmp_path: Path) -> None:
    experiment = load(sample.models("small"), tmp_path)
    assert report_cluster.document([experiment]) == report_cluster.document([experiment])


def test_texts_cannot_become_markup(page_of: Callable[..., Checker], tmp_path: Path) -> None:
    hostile = "\"'><script src=x></script><img onerror=y>&amp;"
    results = json.loads(json.dumps(sample.models("small")).replace("dedicated", json.dumps(hostile)[1:-1]))
    results["title"] = results["description"] = results["file"] = hostile
    results["cases"][0]["settings"][hostile] = hostile
    results["cases"].append({**sample.failed(results["cases"][0]["labels"], hostile), "name": hostile})
    checker = Checker(report_cluster.document([load(results, tmp_path)]))
    assert checker.problems == []
    assert hostile in checker.text


# What it says -----------------------------------------------------------------------------------


def test_finding_names_gain_bound_and_null_result(findings_of: Callable[[dict[str, Any]], str]) -> None:
    results = flat(sample.models())
    set_time(results, 120.0, strategy="mercury", model="small")
    text = findings_of(results)
    assert "mercury is 1.00x to 1.25x as fast as fifo (median 1.12x of 4, most for small, dedicated)" in text
    assert "It gains nothing (less than 2%) for deep, dedicated; deep, co-located." in text
    assert "takes 1.20x to 1.50x the bound" in text
    assert "Nothing else that was tried is more than 2% faster anywhere." in text


def test_finding_admits_what_is_faster(findings_of: Callable[[dict[str, Any]], str]) -> None:
    results = flat(sample.models())
    set_time(results, 160.0, strategy="mercury", model="deep", placement="co-located")
    set_time(results, 140.0, strategy="bytescheduler", model="small", placement="dedicated")
    text = findings_of(results)
    assert "It is slower than fifo for deep, co-located." in text
    assert "In 2 of 4 comparisons something else is more than 2% faster than mercury" in text
    assert "bytescheduler (64kb) for small, dedicated (7%)" in text


def test_finding_is_about_the_fastest_where_nothing_is_ours(
    findings_of: Callable[[dict[str, Any]], str],
) -> None:
    results = flat(sample.models("small"))
    results["cases"] = [case for case in results["cases"] if "mercury" not in case["labels"]["strategy"]]
    results["dimensions"]["strategy"] = ["fifo", "bytescheduler", "tictac"]
    set_time(results, 75.0, strategy="tictac")
    assert findings_of(results).startswith("tictac is 2.00x as fast as fifo")
    set_time(results, 50.0, strategy="bytescheduler")
    assert findings_of(results).startswith("bytescheduler is 3.00x as fast as fifo")
    # In most of the cells, not in the first or the most distant one.
    several = flat(sample.models())
    several["cases"] = [case for case in several["cases"] if "mercury" not in case["labels"]["strategy"]]
    several["dimensions"]["strategy"] = ["fifo", "bytescheduler", "tictac"]
    set_time(several, 75.0, strategy="tictac", model="small", placement="dedicated")
    assert findings_of(several).startswith("bytescheduler is 1.00x as fast as fifo")
    results["cases"] = [case for case in results["cases"] if case["labels"]["strategy"] == "fifo"]
    assert findings_of(results).startswith("An iteration under fifo takes 1.50x the bound")


def test_finding_compares_with_the_time_alone(findings_of: Callable[[dict[str, Any]], str]) -> None:
    results = flat(sample.shared())
    set_time(results, 165.0, network="two jobs", qdisc="mercury")
    set_time(results, 300.0, network="two jobs", qdisc="pfifo")
    set_time(results, 225.0, network="upload", qdisc="pfifo")
    text = findings_of(results)
    assert (
        "Beside other traffic, mercury takes 1.00x to 1.10x its time alone, most for two jobs, job job." in text
    )
    assert (
        "Beside other traffic, pfifo takes 1.50x to 2.00x its time alone, most for two jobs, job job." in text
    )


def test_best_variant_counts_and_all_are_listed(page_of: Callable[..., Checker], tmp_path: Path) -> None:
    results = flat(sample.models())
    for case in results["cases"]:
        if case["variant"] == "1mb":
            case["jobs"]["job"]["iteration_ms"] = sample.spread([130.0])
    cell = cluster_results.cells(load(results, tmp_path))[0]
    assert cell.outcomes["bytescheduler"].case.variant == "1mb"
    assert cell.outcomes["bytescheduler"].job.time == 130
    assert len(cell.outcomes["bytescheduler"].variants) == 2
    assert "All variants of the sweeps" in page_of(results).text


def test_cells_differ_in_nothing_but_what_is_compared(tmp_path: Path) -> None:
    cells = cluster_results.cells(load(sample.models(), tmp_path))
    assert [cell.title(False) for cell in cells] == [
        "small, dedicated", "small, co-located", "deep, dedicated", "deep, co-located"
    ]  # fmt: skip
    for cell in cells:
        for label, outcome in cell.outcomes.items():
            assert outcome.case.labels == {**cell.labels, "strategy": label}
    assert list(cells[2].failures) == ["tictac"]
    assert cells[0].title(True) == "small, dedicated, job job"


def test_changes_of_rate_count_for_the_bound(tmp_path: Path) -> None:
    results = flat(sample.shared())
    for case in results["cases"]:
        case["jobs"]["job"]["bound"]["with_rate_changes_ms"] = 120.0
    cell = cluster_results.cells(load(results, tmp_path))[0]
    assert cell.bound_ms == 120
    assert cell.outcomes["pfifo"].job.over_bound == 150 / 120


def test_what_no_order_can_reach_is_told(findings_of: Callable[[dict[str, Any]], str]) -> None:
    results = flat(sample.shared())
    assert "no network" not in findings_of(results)
    for case in results["cases"]:
        if case["labels"]["network"] == "alone":
            case["jobs"]["job"]["bound"]["order_ms"] = 124.0
    assert "than this: alone, job job (1.24x)." in findings_of(results)


def test_waits_belong_to_the_layer_that_comes_next() -> None:
    backward: list[Interval] = [(1, 0, 10), (0, 10, 20)]
    forward: list[Interval] = [(0, 25, 30), (1, 30, 33), (2, 40, 41)]
    timeline = Timeline(41, backward, forward, [])
    assert timeline.waits == [(0, 20, 25), (2, 33, 40)]
    assert report_cluster.figures.longest_waits(timeline, 1) == [(2, 33, 40)]


def test_waits_are_on_the_page(page_of: Callable[..., Checker]) -> None:
    results = sample.models("small")
    timeline = results["cases"][0]["timeline"]["job"]
    ready = timeline["backward"][-1][2]
    wait = timeline["forward"][0][1] - ready
    assert wait > 1
    text = page_of(results).text
    assert f"waits {wait:.0f} ms for conv1" in text  # in the picture
    assert f"conv1 {report_cluster.ms(wait)}" in text  # in the table


def test_wire_keeps_its_bytes() -> None:
    wire = [(float(i + 1), 1000.0 * i, 500.0 * i) for i in range(1000)]
    edges, sent, received = report_cluster.figures.wire_rates(Timeline(1000, [], [], wire), 300)
    assert len(sent) <= 300 and len(edges) == len(sent) + 1

    def total(rates: list[float]) -> float:
        return sum(rate * (end - start) / 8e-6 for rate, start, end in zip(rates, edges, edges[1:]))

    assert total(sent) == pytest.approx(sum(row[1] for row in wire))
    assert total(received) == pytest.approx(sum(row[2] for row in wire))


# What is not there yet --------------------------------------------------------------------------


def test_a_clock_that_was_real_is_told(page_of: Callable[..., Checker]) -> None:
    assert "The clock was real" in page_of({**sample.shared(), "virtual_time": False}).text
    assert "The clock was real" not in page_of(sample.shared()).text


@pytest.mark.parametrize("count", [0, 1, 3, 8])
def test_partial_results(count: int, page_of: Callable[..., Checker]) -> None:
    results = sample.models("small")
    results["cases"] = results["cases"][:count]
    results["complete"] = False
    checker = page_of(results)
    assert "These results are partial" in checker.text
    for case in results["cases"]:
        time = case["jobs"]["job"]["iteration_ms"]["median"]
        assert case["labels"]["strategy"] in checker.text and report_cluster.ms(time) in checker.text


def test_missing_combinations_are_counted(page_of: Callable[..., Checker]) -> None:
    results = sample.models("small")
    del results["cases"][7:]  # one of the first five strategies has two variants
    results["complete"] = False
    assert "4 of 10 combinations have not run yet" in page_of(results).text
    assert "have not run yet" not in page_of(sample.models("small")).text
    # All labels, but not all of a sweep.
    results = sample.models("small")
    results["cases"] = [case for case in results["cases"] if case["variant"] != "1mb"]
    results["complete"] = False
    assert "some variants have not run yet" in page_of(results).text


def test_all_failed(page_of: Callable[..., Checker]) -> None:
    results = sample.models()
    results["cases"] = [sample.failed(case["labels"], "the bridge is gone") for case in results["cases"]]
    text = page_of(results).text
    assert "No case has a result." in text
    assert "24 of 24 cases failed" in text


@pytest.mark.parametrize("strategy", ["fifo", "mercury"])
def test_without_baseline_or_ours(strategy: str, page_of: Callable[..., Checker]) -> None:
    results = sample.models("small")
    for i, case in enumerate(results["cases"]):
        if case["labels"]["strategy"] == strategy:
            results["cases"][i] = sample.failed(case["labels"], "worker 0 died")
    text = page_of(results).text
    assert "mercury cannot be compared with fifo: nowhere are there results of both." in text
    assert "worker 0 died" in text
    if strategy == "fifo":
        assert "the bound (fifo has no result)" in text


def test_without_anything_that_need_not_be_there(page_of: Callable[..., Checker]) -> None:
    results = sample.models("small")
    results["report"] = {}
    for case in results["cases"]:
        for key in ("background", "retransmits", "timeouts", "drops", "timeline", "real_seconds"):
            case.pop(key, None)
    text = page_of(results).text
    assert "mercury is" in text and "Where the time goes" not in text


def test_a_single_case_without_dimensions(page_of: Callable[..., Checker]) -> None:
    case = sample.case({}, "small", "fifo", 1.0)
    case["name"] = "only"
    assert "only" in page_of(sample.experiment("one", {}, [case])).text


def test_labels_of_a_curve_need_not_be_numbers(page_of: Callable[..., Checker]) -> None:
    results = json.loads(json.dumps(sample.ratio()).replace('"0.25"', '"quarter"'))
    assert "quarter" in page_of(results).text


# What is wrong ----------------------------------------------------------------------------------

Edit = Callable[[dict[str, Any]], Any]


def drop(*path: str | int) -> Edit:
    return lambda results: place(results, path).pop(path[-1])


def put(value: Any, *path: str | int) -> Edit:
    return lambda results: place(results, path).__setitem__(path[-1], value)


def place(results: Any, path: tuple[str | int, ...]) -> Any:
    for key in path[:-1]:
        results = results[key]
    return results


JOB = ("cases", 0, "jobs", "job")
TIMELINE = ("cases", 0, "timeline", "job")


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (drop("cases"), "cases: is missing"),
        (drop("title"), "title: is missing"),
        (put("no", "complete"), 'complete: is "no", expected true or false'),
        (put([], "dimensions"), "dimensions: is [], expected an object"),
        (put(3, "dimensions", "model", 0), "dimensions.model[0]: is 3, expected a text"),
        (
            put("colour", "report", "compare"),
            'report.compare: is "colour", expected one of model, placement, strategy',
        ),
        (put("p3", "report", "baseline"), 'report.baseline: is "p3", expected one of fifo, bytescheduler'),
        (put("y", "report", "x"), 'report.x: is "y", expected one of'),
        (drop("cases", 1, "labels", "model"), "cases[1].labels.model: is missing"),
        (
            put("vgg", "cases", 1, "labels", "model"),
            'cases[1].labels.model: is "vgg", which dimensions.model does not have',
        ),
        (drop("cases", 0, "jobs"), "cases[0].jobs: is missing"),
        (put(7, "cases", 0, "error"), "cases[0].error: is 7, expected a text"),
        (put("slow", *JOB, "iteration_ms", "median"), 'iteration_ms.median: is "slow", expected a number'),
        (put(0, *JOB, "iteration_ms", "median"), "iteration_ms.median: is 0, expected more than 0"),
        (put(True, *JOB, "iteration_ms", "max"), "iteration_ms.max: is true, expected a number"),
        (
            put(float("nan"), *JOB, "iterations_ms", 0, 1),
            "cases[0].jobs.job.iterations_ms[0][1]: is not finite",
        ),
        (put(None, *JOB, "bound", "total_ms"), "bound.total_ms: is null, expected a number"),
        (put(["a", 1], *JOB, "layers", 0), "cases[0].jobs.job.layers[0]: has 2 elements, expected 4"),
        (put(3, *TIMELINE, "forward", 0, 0), "forward[0][0]: is 3, expected a layer from 0 to 2"),
        (
            put({}, "cases", 0, "timeline", "other"),
            "cases[0].timeline.other: is of a job that this case does not have",
        ),
        (put([1], *TIMELINE, "wire", 0), "cases[0].timeline.job.wire[0]: has 1 elements, expected 3"),
        (drop("cases", 0, "drops", "max"), "cases[0].drops.max: is missing"),
    ],
)
def test_wrong_results_are_refused_by_file_and_key(
    edit: Edit, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = copy.deepcopy(sample.models("small"))
    edit(results)
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(results), encoding="utf-8")
    assert report_cluster.main([str(file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"report_cluster: {file}: ") and complaint in error
    assert not file.with_suffix(".html").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", ":1: is not JSON"),
        (b'{"cases":\n[1,]}', ":2: is not JSON"),
        (b"\xff\xfe\x00", ": is not a text"),
        (b"[1]", ": the file: is [1], expected an object"),
    ],
)
def test_what_is_no_result_is_refused(
    content: bytes, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.json"
    file.write_bytes(content)
    assert report_cluster.main([str(file)]) == 1
    assert f"{file}{complaint}" in capsys.readouterr().err


def test_files_that_cannot_be_read_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing.json"
    assert report_cluster.main([str(missing)]) == 1
    assert f"{missing}: No such file" in capsys.readouterr().err

    file = tmp_path / "results.json"
    file.write_text(json.dumps(sample.ratio()), encoding="utf-8")
    out = tmp_path / "nowhere" / "page.html"
    assert report_cluster.main([str(file), "--out", str(out)]) == 1
    assert str(out) in capsys.readouterr().err


def test_command_writes_the_page_and_prints_the_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ratio.json"
    file.write_text(json.dumps(sample.ratio()), encoding="utf-8")
    assert report_cluster.main([str(file)]) == 0
    page = (tmp_path / "ratio.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    printed = capsys.readouterr().out.splitlines()
    assert printed and all(report_cluster.escape(line) in page for line in printed)

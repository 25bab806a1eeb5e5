# SPDX-License-Identifier: MIT
"""Writes what `replay cluster` measured as one HTML page that needs nothing else.

The page has the findings in words, tables, pictures, what failed, and the settings. Results of an
experiment that is still running, or was stopped, are shown as far as they go.
"""

from __future__ import annotations

import argparse
import html
import math
import sys
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from statistics import median
from typing import Any

import cluster_figures as figures
from cluster_results import (
    Case,
    Cell,
    Experiment,
    Outcome,
    ResultsError,
    Spread,
    Timeline,
    cells,
    load,
    over_alone,
    speed_up,
    words,
)

TIE = 0.02  # of an iteration; less is noise
TARGET = 0.05  # above the bound

STYLE = """
:root { color-scheme: light dark; --page: #ffffff; %(light)s }
@media (prefers-color-scheme: dark) { :root { --page: #0d1117; %(dark)s } }
body { background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, 'DejaVu Sans', sans-serif;
  max-width: 84rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .4rem; border-bottom: 1px solid var(--grid); padding-bottom: .2rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
p, ul { max-width: 62rem; margin: .4rem 0 .8rem; }
.finding { font-size: 1.12rem; border-left: 4px solid var(--ours); padding: .1rem 0 .1rem 1rem; }
.finding p { margin: .3rem 0; }
.warning { margin-top: .8rem; border-left: 4px solid var(--bound); padding: .2rem 0 .2rem 1rem; }
.muted, figcaption, caption { color: var(--muted); font-size: .9rem; }
.grid { display: grid; gap: 1.2rem 2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%%, 32rem), 1fr)); }
section + section { margin-top: 5rem; }
figure { margin: 0; overflow-x: auto; }
.grid figure { max-width: 46rem; }
figure.wide svg.chart { min-width: 50rem; }
figcaption { color: var(--ink); font-weight: 600; }
svg.chart { width: 100%%; height: auto; display: block; }
svg.chart * { stroke-linejoin: round; stroke-linecap: butt; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; margin: .3rem 0 1rem; }
caption { text-align: left; padding-bottom: .2rem; }
th, td { padding: .2rem .8rem .2rem 0; text-align: right; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }
th { color: var(--muted); font-weight: 600; }
th.text, td.text { text-align: left; }
td.wrap, th.wrap { white-space: normal; max-width: 46rem; text-align: left; }
tr.ours td { font-weight: 600; }
tr.group td { border-bottom: 0; padding-top: .9rem; font-weight: 600; }
summary { cursor: pointer; padding: .3rem 0; }
code { background: var(--lane); padding: .1rem .35rem; border-radius: 4px; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .3em 0 .8em; }
"""


# Words ------------------------------------------------------------------------------------------


def escape(text: object) -> str:
    return html.escape(str(text))


def ms(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def span(values: Sequence[float]) -> str:
    """The least and the most, or one figure if both read the same."""
    low, high = times(min(values)), times(max(values))
    return low if low == high else f"{low} to {high}"


def spread(value: Spread | None, format_: str = ".0f") -> str:
    if value is None:
        return ""
    low, high = f"{value.min:{format_}}", f"{value.max:{format_}}"
    middle = f"{value.median:{format_}}"
    return middle if low == high else f"{middle} ({low} to {high})"


class Page:
    """One experiment's part of the page."""

    def __init__(self, experiment: Experiment, number: int) -> None:
        self.experiment = experiment
        self.cells = cells(experiment)
        self.several_jobs = len({cell.job for cell in self.cells}) > 1
        self.number = number
        self.pictures = 0

    def title_of(self, cell: Cell) -> str:
        return cell.title(self.several_jobs)

    # Findings ------------------------------------------------------------------------------------

    def findings(self) -> list[str]:
        if not self.cells:
            return ["No case has a result."]
        sentences = []
        label = self.experiment.ours or self.most_often_fastest()
        if label != self.experiment.baseline:
            sentences += self.against_baseline(label)
        sentences += self.against_alone(label)
        sentences += self.against_bound(label)
        sentences += self.beyond_the_bound()
        sentences += self.against_others(label)
        return sentences

    def most_often_fastest(self) -> str:
        """What to talk about where nothing is ours; the baseline only if there is nothing else."""
        wins: dict[str, int] = {}
        for cell in self.cells:
            others = [label for label in cell.outcomes if label != self.experiment.baseline]
            if others:
                fastest = min(others, key=lambda label: cell.outcomes[label].job.time)
                wins[fastest] = wins.get(fastest, 0) + 1
        return max(wins, key=wins.__getitem__, default=self.experiment.baseline)

    def beyond_the_bound(self) -> list[str]:
        """Where gradients are ready so late that no network can overlap them with the computing."""
        best = {
            self.title_of(cell): min(outcome.job.order_ms for outcome in cell.outcomes.values()) / cell.bound_ms
            for cell in self.cells
        }
        late = [f"{name} ({times(ratio)})" for name, ratio in best.items() if ratio > 1.01]
        if not late:
            return []
        return [f"The order of the layers lets no network come nearer to the bound than this: {listed(late)}."]

    def against_baseline(self, label: str) -> list[str]:
        baseline = self.experiment.baseline
        gains = {
            self.title_of(cell): gain
            for cell in self.cells
            if (gain := speed_up(cell, label, baseline)) is not None
        }
        if not gains:
            return [f"{label} cannot be compared with {baseline}: nowhere are there results of both."]
        best = max(gains, key=gains.__getitem__)
        middle = f" (median {times(median(gains.values()))} of {len(gains)}, most for {best})"
        sentences = [
            f"{label} is {span(list(gains.values()))} as fast as {baseline}{middle if len(gains) > 1 else ''}."
        ]
        ties = [name for name, gain in gains.items() if abs(gain - 1) <= TIE]
        slower = [name for name, gain in gains.items() if gain < 1 - TIE]
        if ties:
            sentences.append(f"It gains nothing (less than {TIE:.0%}) for {listed(ties)}.")
        if slower:
            sentences.append(f"It is slower than {baseline} for {listed(slower)}.")
        return sentences

    def against_alone(self, label: str) -> list[str]:
        """For shared networks: the same strategy beside others and alone."""

        def ratios(of: str) -> dict[str, float]:
            pairs = ((self.title_of(cell), over_alone(cell, of, self.cells)) for cell in self.cells)
            return {title: ratio for title, ratio in pairs if ratio is not None}

        sentences = []
        for name in dict.fromkeys((label, self.experiment.baseline)):
            if shared := ratios(name):
                worst = max(shared, key=shared.__getitem__)
                most = f", most for {worst}" if len(shared) > 1 else ""
                ratio = span(list(shared.values()))
                sentences.append(f"Beside other traffic, {name} takes {ratio} its time alone{most}.")
        return sentences

    def against_bound(self, label: str) -> list[str]:
        ratios = {
            self.title_of(cell): cell.outcomes[label].job.over_bound
            for cell in self.cells
            if label in cell.outcomes
        }
        if not ratios:
            return [f"{label} has no result yet."]
        missed = [f"{name} ({times(ratio)})" for name, ratio in ratios.items() if ratio > 1 + TARGET]
        sentence = f"An iteration under {label} takes {span(list(ratios.values()))} the bound"
        if missed and len(ratios) > 1:
            return [f"{sentence}; it is more than {TARGET:.0%} above it for {listed(missed)}."]
        return [sentence + "."]

    def against_others(self, label: str) -> list[str]:
        """What is ours is also compared with the best of all others in each cell."""
        behind: list[tuple[float, str]] = []
        compared = 0
        for cell in self.cells:
            others = [other for other in cell.outcomes if other != label]
            if label not in cell.outcomes or not others:
                continue
            compared += 1
            best = min(others, key=lambda other: cell.outcomes[other].job.time)
            lead = cell.outcomes[label].job.time / cell.outcomes[best].job.time - 1
            if lead > TIE:
                name = figures.row_label(best, cell.outcomes[best])
                behind.append((lead, f"{name} for {self.title_of(cell)} ({lead:.0%})"))
        if not compared:
            return []
        if not behind:
            return [f"Nothing else that was tried is more than {TIE:.0%} faster anywhere."]
        behind.sort(reverse=True)
        return [
            f"In {len(behind)} of {count(compared, 'comparison')} something else is more than {TIE:.0%} faster "
            f"than {label}: {listed([name for _, name in behind])}."
        ]

    def state(self) -> list[str]:
        experiment = self.experiment
        sentences = []
        if experiment.missing:
            planned = math.prod(map(len, experiment.dimensions.values()))
            sentences.append(
                f"These results are partial: {experiment.missing} of {count(planned, 'combination')} "
                "have not run yet."
            )
        elif not experiment.complete and not experiment.failed:
            sentences.append("These results are partial: some variants have not run yet.")
        if experiment.failed:
            sentences.append(
                f"{len(experiment.failed)} of {count(len(experiment.cases), 'case')} failed; see below."
            )
        if not experiment.virtual_time:
            sentences.append("The clock was real: the speed of the machine is part of the results.")
        return sentences

    # Pictures ------------------------------------------------------------------------------------

    def picture(self, figure: Any, caption: str, description: str) -> str:
        """In a grid with others; over the whole width without a caption."""
        self.pictures += 1
        svg = figures.inline_svg(figure, f"e{self.number}p{self.pictures}", escape(description))
        if not caption:
            return f'<figure class="wide">{svg}</figure>'
        return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"

    def bars(self) -> str:
        baseline = self.experiment.baseline
        pictures = []
        for cell in self.cells:
            told = ", ".join(
                f"{label} {value}"
                for label in cell.outcomes
                if (value := times(speed_up(cell, label, baseline)))
            )
            title = self.title_of(cell)
            figure = figures.speed_up_bars(cell, self.experiment)
            pictures.append(self.picture(figure, title, f"Speed-up over {baseline}, {title}: {told}"))
        return f'<div class="grid">{"".join(pictures)}</div>'

    def curves(self) -> str:
        x = self.experiment.x
        assert x is not None
        groups: dict[str, list[Cell]] = {}
        for cell in self.cells:
            rest = [label for dimension, label in cell.labels.items() if dimension != x]
            if self.several_jobs:
                rest.append(f"job {cell.job}")
            groups.setdefault(", ".join(rest), []).append(cell)
        pictures = []
        for name, group in groups.items():
            for over_bound in (False, True):
                figure = figures.curve(group, self.experiment, x, over_bound)
                axis = figure.axes[0].get_ylabel()
                caption = f"{name}: {axis}" if name else axis
                told = f"{caption}, by {x}; the figures are in the table"
                pictures.append(self.picture(figure, caption, told))
        return f'<div class="grid">{"".join(pictures)}</div>'

    def distributions(self) -> str:
        pictures = [
            self.picture(
                figures.distributions(cell, self.experiment),
                self.title_of(cell),
                f"Iteration times, {self.title_of(cell)}",
            )
            for cell in self.cells
        ]
        return f'<div class="grid">{"".join(pictures)}</div>'

    def timelines(self) -> str:
        parts: list[str] = []
        for cell in self.cells:
            chosen = self.chosen_timelines(cell)
            if not chosen:
                continue
            title = self.title_of(cell)
            picture = self.picture(figures.timelines(chosen), "", f"One iteration of each, {title}")
            is_open = " open" if not parts else ""
            waits = self.waits(chosen)
            parts.append(f"<details{is_open}><summary>{escape(title)}</summary>{picture}{waits}</details>")
        return "".join(parts)

    def chosen_timelines(self, cell: Cell) -> list[tuple[str, Outcome, Timeline]]:
        """The baseline, the best of the others, and ours."""
        experiment = self.experiment
        named = [label for label in (experiment.baseline, experiment.ours) if label in cell.outcomes]
        others = [label for label in cell.outcomes if label not in named and not label.startswith("mercury")]
        if others:
            named.insert(1, min(others, key=lambda label: cell.outcomes[label].job.time))
        labels = [label for label in dict.fromkeys(named) if label is not None]
        return [
            (label, cell.outcomes[label], timeline)
            for label in labels
            if (timeline := cell.outcomes[label].timeline) is not None
        ]

    def waits(self, chosen: Sequence[tuple[str, Outcome, Timeline]]) -> str:
        rows = []
        for label, outcome, timeline in chosen:
            waits = timeline.waits
            longest = "; ".join(
                f"{outcome.job.layers[layer].name} {ms(end - start)}"
                for layer, start, end in figures.longest_waits(timeline, 4)
            )
            total = sum(end - start for _, start, end in waits)
            rows.append([label, ms(timeline.iteration_ms), ms(total), str(len(waits)), longest])
        return table(
            ["text", "number", "number", "number", "text"],
            [
                words(self.experiment.compare),
                "iteration ms",
                "waits ms",
                "layers waited for",
                "longest (layer ms)",
            ],
            rows,
        )

    # Tables --------------------------------------------------------------------------------------

    def results_table(self) -> str:
        experiment = self.experiment
        flows = list(dict.fromkeys(name for case in experiment.cases for name in case.background))
        head = [
            words(experiment.compare), "best variant", "median ms", "min to max", "over bound",
            f"vs {experiment.baseline}", "vs alone", *(f"{name} Gbit/s" for name in flows),
            "retransmits", "timeouts", "drops",
        ]  # fmt: skip
        kinds = ["text", "text", *["number"] * (len(head) - 2)]
        rows: list[Row] = []
        ours = set()
        for cell in self.cells:
            rows.append(f"{self.title_of(cell)}: bound {ms(cell.bound_ms)} ms")
            for label, outcome in cell.outcomes.items():
                if label == experiment.ours:
                    ours.add(len(rows))
                rows.append(self.result_row(cell, label, outcome, flows))
            for label, failed in cell.failures.items():
                if label not in cell.outcomes:
                    rows.append((label, f"failed: {failed[0].error}"))
        return table(kinds, head, rows, ours)

    def result_row(self, cell: Cell, label: str, outcome: Outcome, flows: Sequence[str]) -> list[str]:
        job, case = outcome.job, outcome.case
        time = job.iteration_ms
        return [
            label, case.variant, ms(time.median), f"{ms(time.min)} to {ms(time.max)}", f"{job.over_bound:.3f}",
            times(speed_up(cell, label, self.experiment.baseline)), times(over_alone(cell, label, self.cells)),
            *(spread(case.background.get(name), ".2f") for name in flows),
            *(spread(case.counts.get(name)) for name in ("retransmits", "timeouts", "drops")),
        ]  # fmt: skip

    def sweeps_table(self) -> str:
        """All variants, where there are several."""
        rows: list[Row] = []
        for cell in self.cells:
            for label, outcome in cell.outcomes.items():
                if len(outcome.variants) < 2:
                    continue
                rows.append(f"{label}, {self.title_of(cell)}")
                for case, job in outcome.variants:
                    time = job.iteration_ms
                    rows.append(
                        [
                            case.variant,
                            ms(time.median),
                            f"{ms(time.min)} to {ms(time.max)}",
                            f"{job.over_bound:.3f}",
                        ]
                    )
        if not rows:
            return ""
        text = table(
            ["text", "number", "number", "number"], ["variant", "median ms", "min to max", "over bound"], rows
        )
        return f"<details><summary>All variants of the sweeps</summary>{text}</details>"

    def failures_table(self) -> str:
        rows = [[case.name, case.error or ""] for case in self.experiment.failed]
        return table(["text", "wrap"], ["case", "error"], rows)

    def settings_tables(self) -> str:
        flat = [(case, dict(flatten(case.settings))) for case in self.experiment.cases if case.settings]
        keys = dict.fromkeys(key for _, settings in flat for key in settings)
        common = [key for key in keys if len({settings.get(key) for _, settings in flat}) == 1]
        text = table(["text", "wrap"], ["in all cases", ""], [[key, flat[0][1][key]] for key in common])
        differing = [key for key in keys if key not in common]
        if not differing:
            return text
        rows: list[Row] = []
        for case, settings in flat:
            rows.append(case.name)
            rows += [[key, settings[key]] for key in differing if key in settings]
        each = table(["text", "wrap"], ["setting", "value"], rows)
        return f"{text}<details><summary>What differs from case to case</summary>{each}</details>"

    # Everything ----------------------------------------------------------------------------------

    def render(self) -> str:
        experiment = self.experiment
        parts = [f"<section><h1>{escape(experiment.title)}</h1>"]
        if experiment.description:
            parts.append(f"<p>{escape(experiment.description)}</p>")
        finding = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.findings())
        parts.append(f'<div class="finding">{finding}</div>')
        if state := self.state():
            parts.append(
                '<div class="warning">' + "".join(f"<p>{escape(line)}</p>" for line in state) + "</div>"
            )
        if self.cells:
            parts += self.result_sections()
        if experiment.failed:
            parts.append(f"<h2>Failed cases</h2>{self.failures_table()}")
        if experiment.cases:
            parts.append(f"<h2>Settings</h2>{self.settings_tables()}")
        parts.append(f"<p>Made by <code>scripts/cluster {escape(experiment.file)}</code></p></section>")
        return "".join(parts)

    def result_sections(self) -> Iterable[str]:
        experiment = self.experiment
        baseline = escape(experiment.baseline)
        if experiment.x:
            yield (
                f"<h2>Over {escape(words(experiment.x))}</h2><p>The dashed line is the bound: nothing can be beyond "
                f"it. Where it is next to {baseline}, there is nothing to gain.</p>{self.curves()}"
            )
        yield self.bar_section()
        yield (
            "<h2>Figures</h2><p>Milliseconds an iteration: the median of the repeats, the least and the most. The "
            "bound is the longer of computing and sending, as if all of one could happen during the other; no "
            f"order of transmission can be faster.</p>{self.results_table()}{self.sweeps_table()}"
        )
        yield (
            "<h2>Every iteration</h2><p>A dot is an iteration, the box holds the middle half of them, the line "
            f"is the median.</p>{self.distributions()}"
        )
        if timelines := self.timelines():
            yield (
                "<h2>Where the time goes</h2><p>One iteration of one worker: the backward pass from the last layer "
                "to the first, then the next forward pass, which has to wait (hatched) for what has not come back "
                "yet. Red layers are needed first, blue ones last. Below, what its host sends (blue) and "
                f"receives (orange).</p>{timelines}"
            )

    def bar_section(self) -> str:
        experiment = self.experiment
        key = "".join(
            f'<span class="key" style="background: var(--{name})"></span>{escape(text)}'
            for name, text in (
                ("ours", experiment.ours),
                ("ablation", "the same without one of its parts, or another form of it"),
                ("baseline", experiment.baseline),
                ("other", "others"),
                ("bound", "the bound"),
            )
            if text and (name != "ablation" or self.has_ablations())
        )
        bars = (
            "<p>Longer is faster. The dark line is the range of the repeats; a strategy with several variants is "
            f'shown at its best one.</p><p class="muted">{key}</p>{self.bars()}'
        )
        heading = f"Times as fast as {escape(experiment.baseline)}"
        if experiment.x:
            bars = f"<details><summary>Bars for each {escape(words(experiment.x))}</summary>{bars}</details>"
        return f"<h2>{heading}</h2>{bars}"

    def has_ablations(self) -> bool:
        labels = self.experiment.dimensions[self.experiment.compare]
        return any(label.startswith("mercury") and label != self.experiment.ours for label in labels)


# HTML -------------------------------------------------------------------------------------------


Row = list[str] | str | tuple[str, str]


def listed(names: Sequence[str], most: int = 4) -> str:
    """Some of them, and how many more; names have commas inside, hence the semicolons."""
    shown = list(names[:most])
    if len(names) > most:
        shown.append(f"and {len(names) - most} more")
    return "; ".join(shown)


def table(kinds: Sequence[str], head: Sequence[str], rows: Sequence[Row], bold: Set[int] = frozenset()) -> str:
    """Rows are cells, a heading for those that follow, or a first cell and one remark instead of the
    others. Columns without any content are left out."""
    full = [row for row in rows if isinstance(row, list)]
    columns = [i for i in range(len(head)) if any(row[i] for row in full)] or [0, 1]
    if not rows:
        return ""

    def line(tag: str, cells_: Sequence[str]) -> str:
        return "".join(f'<{tag} class="{kinds[i]}">{escape(cells_[i])}</{tag}>' for i in columns)

    body = []
    for i, row in enumerate(rows):
        if isinstance(row, tuple):
            first, remark = map(escape, row)
            rest = f'<td class="wrap" colspan="{len(columns) - 1}">{remark}</td>'
            body.append(f'<tr><td class="text">{first}</td>{rest}</tr>')
        elif isinstance(row, str):
            body.append(f'<tr class="group"><td class="text" colspan="{len(columns)}">{escape(row)}</td></tr>')
        else:
            attribute = ' class="ours"' if i in bold else ""
            body.append(f"<tr{attribute}>{line('td', row)}</tr>")
    titles = f'<thead><tr>{line("th", head)}</tr></thead>'
    return f'<div class="scroll"><table>{titles}<tbody>{"".join(body)}</tbody></table></div>'


def flatten(settings: Any, path: str = "") -> Iterable[tuple[str, str]]:
    """A path such as network.rate, and its value; a list of plain values is one value."""
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from flatten(value, f"{path}.{key}" if path else key)
    elif isinstance(settings, list) and any(isinstance(value, (dict, list)) for value in settings):
        for i, value in enumerate(settings):
            yield from flatten(value, f"{path}[{i}]")
    elif isinstance(settings, list):
        yield path, ", ".join(map(str, settings))
    else:
        yield path, str(settings)


def document(experiments: Sequence[Experiment]) -> str:
    def variables(theme: int) -> str:
        return " ".join(f"--{name}: {colours[theme]};" for name, colours in figures.THEME.items())

    style = STYLE % {"light": variables(0), "dark": variables(1)}
    title = "; ".join(experiment.title for experiment in experiments)
    body = "".join(Page(experiment, number).render() for number, experiment in enumerate(experiments, 1))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body>{body}</body></html>\n"
    )


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "results", type=Path, nargs="+", metavar="RESULTS.json", help="what replay cluster wrote"
    )
    parser.add_argument("--out", type=Path, metavar="PAGE.html", help="default: RESULTS.html beside the first")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    out = options.out or options.results[0].with_suffix(".html")
    try:
        experiments = [load(file) for file in options.results]
        page = document(experiments)
        out.write_text(page, encoding="utf-8")
    except ResultsError as error:
        print(f"report_cluster: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"report_cluster: {out}: {error.strerror}", file=sys.stderr)
        return 1
    for number, experiment in enumerate(experiments, 1):
        for sentence in Page(experiment, number).findings():
            print(sentence)
    return 0


if __name__ == "__main__":
    sys.exit(main())

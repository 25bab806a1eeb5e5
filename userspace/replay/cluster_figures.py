# SPDX-License-Identifier: MIT
"""The pictures of a cluster report, as SVG that can stand inside an HTML page.

Colours come from the page's style sheet, so that a picture is as light or dark as the page: each
of THEME is replaced by a CSS variable.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cluster_results import Cell, Experiment, Interval, Outcome, Timeline, is_number, speed_up, words
from plot_timeline import COLOURS, nice_ticks

INK = "#1f2328"
MUTED = "#59636e"
GRID = "#d0d7de"
LANE = "#f1f3f5"
OURS = "#0072b2"
ABLATION = "#6fb1d6"
BASELINE = "#57606a"
OTHER = "#a4adb6"
BOUND = "#d55e00"
# CSS variable: (light, dark). Blue and vermilion stay apart for the colour-blind; what a picture
# says is also written next to it.
THEME: dict[str, tuple[str, str]] = {
    "ink": (INK, "#e6edf3"),
    "muted": (MUTED, "#9aa4af"),
    "grid": (GRID, "#363d46"),
    "lane": (LANE, "#1c222a"),
    "ours": (OURS, "#4ba3e3"),
    "ablation": (ABLATION, "#2f6690"),
    "baseline": (BASELINE, "#b0b8c1"),
    "other": (OTHER, "#6b747e"),
    "bound": (BOUND, "#ff8a3d"),
    "line-1": ("#b57d00", "#e6a519"),
    "line-2": ("#00825f", "#2fc79a"),
    "line-3": ("#b0578a", "#e08fbd"),
    "line-4": ("#3d9bd1", "#7cc4ee"),
    "line-5": ("#8c510a", "#c98d4a"),
}
LINES = [light for name, (light, _) in THEME.items() if name.startswith("line")]
MARKERS = "sD^vPX*<>p"
WIRE_BINS = 160  # in a timeline

matplotlib.rcParams.update({"hatch.linewidth": 0.6, "text.color": INK, "axes.labelcolor": MUTED})


def inline_svg(figure: Figure, identity: str, description: str) -> str:
    """IDENTITY keeps the ids of several pictures in one page apart."""
    stream = io.StringIO()
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(stream, format="svg", transparent=True, metadata=metadata)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    head, body = svg.split(">", 1)
    view = re.search(r'viewBox="[^"]*"', head)
    assert view is not None  # matplotlib always has one
    body = body.replace("xlink:href", "href")
    body = re.sub(r'(?<=\bid=")|(?<=href="#)|(?<=url\(#)', f"{identity}-", body)
    body = body.replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans', sans-serif")
    for name, (light, _) in THEME.items():
        body = body.replace(light, f"var(--{name})")
    return f'<svg class="chart" role="img" aria-label="{description}" {view.group()}>{body.strip()}'


def colour_of(label: str, experiment: Experiment) -> str:
    """For bars: what is ours stands out, the baseline is plain, the rest is in the background."""
    if label == experiment.ours:
        return OURS
    if label == experiment.baseline:
        return BASELINE
    return ABLATION if label.startswith("mercury") else OTHER


def plain_axes(axes: Axes) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(axis="both", length=0, labelsize=9, labelcolor=INK)


def row_label(label: str, outcome: Outcome | None) -> str:
    """Of a variant such as "partition=64kb credit=4" only the values: there is little room."""
    variant = outcome.case.variant if outcome else ""
    values = " ".join(word.rpartition("=")[2] for word in variant.split())
    return f"{label} ({values})" if values else label


def rows_of(cell: Cell) -> list[str]:
    """All labels that ran or failed, in their order."""
    return [*cell.outcomes, *(label for label in cell.failures if label not in cell.outcomes)]


def rows_figure(cell: Cell, rows: Sequence[str]) -> tuple[Figure, Axes]:
    """A row for each label, the first on top."""
    figure = Figure(figsize=(6.2, 0.62 + 0.27 * len(rows)))
    axes = figure.add_axes((0.29, 0.42 / figure.get_figheight(), 0.63, 1 - 0.6 / figure.get_figheight()))
    plain_axes(axes)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels([row_label(row, cell.outcomes.get(row)) for row in rows])
    return figure, axes


def mark_bound(axes: Axes, x: float, text: str) -> None:
    axes.axvline(x, color=BOUND, linewidth=1.3, linestyle=(0, (4, 2)), zorder=3)
    axes.text(
        x, 1.0, text, transform=axes.get_xaxis_transform(), color=BOUND, fontsize=8.5, ha="center", va="bottom"
    )


def speed_up_bars(cell: Cell, experiment: Experiment) -> Figure:
    """How many times as fast as the baseline; without one, how near to the bound."""
    rows = rows_of(cell)
    figure, axes = rows_figure(cell, rows)
    baseline = cell.outcomes.get(experiment.baseline)
    reference = baseline.job.time if baseline else cell.bound_ms
    for y, label in enumerate(rows):
        outcome = cell.outcomes.get(label)
        if outcome is None:
            axes.text(0, y, " failed", color=BOUND, fontsize=9, va="center")
            continue
        time = outcome.job.iteration_ms
        value = reference / time.median
        axes.barh(y, value, 0.72, color=colour_of(label, experiment))
        axes.plot([reference / time.max, reference / time.min], [y, y], color=INK, linewidth=1.1)
        axes.text(
            1.11, y, f"{value:.2f}x", transform=axes.get_yaxis_transform(), color=INK, fontsize=9, ha="right",
            va="center", fontweight="bold" if label == experiment.ours else "normal",
        )  # fmt: skip
    bound = reference / cell.bound_ms
    mark_bound(axes, bound, f"bound {bound:.2f}x" if baseline else "bound")
    fastest = max([bound, *(reference / outcome.job.iteration_ms.min for outcome in cell.outcomes.values())])
    axes.set_xlim(0, fastest * 1.04)
    against = experiment.baseline if baseline else f"the bound ({experiment.baseline} has no result)"
    axes.set_xlabel(f"times as fast as {against}", fontsize=9)
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(6))
    return figure


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    ordered = sorted(values)

    def at(part: float) -> float:
        place = part * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return at(0.25), at(0.5), at(0.75)


def distributions(cell: Cell, experiment: Experiment) -> Figure:
    """Every measured iteration is a dot; the box holds the middle half of them."""
    rows = [label for label in rows_of(cell) if label in cell.outcomes]
    figure, axes = rows_figure(cell, rows)
    low = high = cell.bound_ms
    for y, label in enumerate(rows):
        times = cell.outcomes[label].job.iterations_ms
        if not times:
            continue
        low, high = min(low, *times), max(high, *times)
        first, median, third = quartiles(times)
        colour = colour_of(label, experiment)
        axes.barh(y, third - first, 0.62, left=first, color=colour, alpha=0.35)
        # Spread over the row evenly, and the same way each time.
        heights = [y + ((i * 0.618034) % 1 - 0.5) * 0.5 for i in range(len(times))]
        axes.plot(times, heights, ".", color=colour, markersize=4, alpha=0.75, markeredgewidth=0)
        axes.plot([median, median], [y - 0.36, y + 0.36], color=INK, linewidth=1.6)
    mark_bound(axes, cell.bound_ms, "bound")
    margin = 0.04 * (high - low) or 0.02 * high
    axes.set_xlim(low - margin, high + margin)
    axes.set_xlabel("ms an iteration", fontsize=9)
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(6))
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure


# Curves -----------------------------------------------------------------------------------------


def x_values(labels: Sequence[str]) -> dict[str, float]:
    """Labels that are all numbers are where they belong, others one beside the other."""
    if all(map(is_number, labels)):
        return {label: float(label) for label in labels}
    return {label: float(i) for i, label in enumerate(labels)}


def curve_axes(x: str, labels: Sequence[str], y_label: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.2, 3.7))
    axes = figure.add_axes((0.1, 0.14, 0.63, 0.81))
    plain_axes(axes)
    axes.grid(color=GRID, linewidth=0.6)
    places = x_values(labels)
    # Ratios and sizes, unlike names, are read on a logarithmic axis.
    if all(map(is_number, labels)) and min(places.values()) > 0:
        axes.set_xscale("log", base=2)
    axes.set_xticks(list(places.values()))
    axes.set_xticklabels(list(places))
    axes.minorticks_off()
    axes.set_xlabel(words(x), fontsize=9)
    axes.set_ylabel(y_label, fontsize=9)
    return figure, axes


def line_style(label: str, experiment: Experiment) -> dict[str, Any]:
    if label == experiment.ours:
        return {"color": OURS, "marker": "o", "linewidth": 2.4, "zorder": 5}
    if label == experiment.baseline:
        return {"color": BASELINE, "marker": "o", "linewidth": 1.6}
    others = [
        other
        for other in experiment.dimensions[experiment.compare]
        if other not in (experiment.ours, experiment.baseline)
    ]
    i = others.index(label)
    return {"color": LINES[i % len(LINES)], "marker": MARKERS[i % len(MARKERS)], "linewidth": 1.4}


def label_ends(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Names beside the right ends of lines, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    apart = (high - low) * 0.062
    place = low - apart
    places = []
    for y, text, colour in sorted(ends):
        place = max(y, place + apart)
        places.append((place, y, text, colour))
    excess = max(0.0, place - high)
    for place, y, text, colour in places:
        axes.annotate(
            text, (1, y), xycoords=axes.get_yaxis_transform(), xytext=(1.03, place - excess),
            textcoords=axes.get_yaxis_transform(), color=colour, fontsize=9, va="center", annotation_clip=False,
        )  # fmt: skip


def curve(cells: Sequence[Cell], experiment: Experiment, x: str, over_bound: bool) -> Figure:
    """CELLS differ in the dimension X only. Either multiples of the bound, or speed-ups over the
    baseline."""
    y_label = "iteration time / bound" if over_bound else f"times as fast as {experiment.baseline}"
    figure, axes = curve_axes(x, experiment.dimensions[x], y_label)
    places = x_values(experiment.dimensions[x])
    ends: list[tuple[float, str, str]] = []

    def draw(name: str, ys: Sequence[float | None], style: dict[str, Any]) -> None:
        points = [(places[cell.labels[x]], y) for cell, y in zip(cells, ys) if y is not None]
        if points:
            axes.plot(*zip(*points), markersize=5, clip_on=False, **style)
            ends.append((points[-1][1], name, style["color"]))

    for label in experiment.dimensions[experiment.compare]:
        if over_bound:
            ran = [cell.outcomes.get(label) for cell in cells]
            ys = [None if outcome is None else outcome.job.over_bound for outcome in ran]
        else:
            ys = [speed_up(cell, label, experiment.baseline) for cell in cells]
        draw(label, ys, line_style(label, experiment))
    draw(
        "bound",
        [1.0 if over_bound else bound_speed_up(cell, experiment.baseline) for cell in cells],
        {"color": BOUND, "linewidth": 1.3, "linestyle": (0, (4, 2))},
    )
    label_ends(axes, ends)
    return figure


def bound_speed_up(cell: Cell, baseline: str) -> float | None:
    outcome = cell.outcomes.get(baseline)
    return None if outcome is None else outcome.job.time / cell.bound_ms


# Timelines --------------------------------------------------------------------------------------


def layer_colour(layer: int, layers: int) -> tuple[float, float, float, float]:
    """Of 24 steps, so that layers next to each other can be drawn as one shape."""
    red, green, blue, alpha = COLOURS(round(layer / max(1, layers - 1) * 23) / 23)
    return red, green, blue, alpha


def draw_compute(axes: Axes, timeline: Timeline, layers: Sequence[str]) -> None:
    colours: list[tuple[float, ...]] = []
    starts: list[float] = []
    ends: list[float] = []
    for layer, start, end in sorted(timeline.backward + timeline.forward, key=lambda span: span[1]):
        colour = layer_colour(layer, len(layers))
        if colours and colours[-1] == colour and start - ends[-1] < 1e-3:
            ends[-1] = end
        else:
            colours.append(colour)
            starts.append(start)
            ends.append(end)
    widths = [end - start for start, end in zip(starts, ends)]
    axes.barh([0] * len(widths), widths, 0.8, left=starts, color=colours)
    room = 0.0075 * axes.get_xlim()[1]  # of a character
    for layer, start, end in timeline.waits:
        axes.barh(0, end - start, 0.8, left=start, facecolor="none", edgecolor=MUTED, hatch="////", linewidth=0)
        for text in (f"waits {end - start:.0f} ms for {layers[layer]}", f"{end - start:.0f} ms"):
            if len(text) * room < end - start:
                axes.text(
                    (start + end) / 2, 0, text, ha="center", va="center", fontsize=8.5, color=INK,
                    bbox={"boxstyle": "round,pad=0.2", "facecolor": LANE, "edgecolor": "none"},
                )  # fmt: skip
                break


def wire_rates(timeline: Timeline, bins: int) -> tuple[list[float], list[float], list[float]]:
    """Bin edges in ms, and Gbit/s sent and received in each of at most BINS bins."""
    if not timeline.wire:
        return [0.0], [], []
    width = timeline.wire[-1][0] / bins
    edges = [0.0]
    sent: list[float] = []
    received: list[float] = []
    bytes_sent = bytes_received = 0.0
    for until, out, back in timeline.wire:
        bytes_sent += out
        bytes_received += back
        if until - edges[-1] >= width or until == timeline.wire[-1][0]:
            ms = max(until - edges[-1], 1e-6)
            sent.append(bytes_sent * 8e-6 / ms)
            received.append(bytes_received * 8e-6 / ms)
            edges.append(until)
            bytes_sent = bytes_received = 0.0
    return edges, sent, received


def draw_wire(axes: Axes, timeline: Timeline, top: float) -> None:
    edges, sent, received = wire_rates(timeline, WIRE_BINS)
    for rates, sign, colour in ((sent, 1, OURS), (received, -1, BOUND)):
        if rates:
            steps = [sign * rate for rate in (*rates, rates[-1])]
            axes.fill_between(edges, steps, step="post", color=colour, alpha=0.8, linewidth=0)
    axes.set_ylim(-top * 1.05, top * 1.05)
    axes.axhline(0, color=GRID, linewidth=0.8)
    axes.set_yticks([-top, top])
    axes.set_yticklabels([f"in {top:.3g}", f"out {top:.3g}"])


def timelines(outcomes: Sequence[tuple[str, Outcome, Timeline]]) -> Figure:
    """One iteration of each, below each other on the same time axis."""
    height = 0.5 + 1.5 * len(outcomes)
    figure = Figure(figsize=(12.4, height))
    longest = max(timeline.iteration_ms for _, _, timeline in outcomes)
    top = max(
        (max(rates, default=0.0) for _, _, t in outcomes for rates in wire_rates(t, WIRE_BINS)[1:]), default=0.0
    )
    for i, (label, outcome, timeline) in enumerate(outcomes):
        y = height - 1.5 * (i + 1)
        compute = figure.add_axes((0.07, (y + 0.85) / height, 0.92, 0.3 / height))
        wire = figure.add_axes((0.07, (y + 0.1) / height, 0.92, 0.66 / height))
        for axes in (compute, wire):
            plain_axes(axes)
            axes.set_facecolor("none")
            axes.set_xlim(0, longest * 1.01)
            axes.set_xticks([])
            axes.spines["bottom"].set_visible(False)
            axes.axvline(timeline.iteration_ms, color=INK, linewidth=1.2)
        compute.set_ylim(-0.4, 0.4)
        compute.set_yticks([0])
        compute.set_yticklabels(["compute"])
        name = row_label(label, outcome)
        compute.set_title(f"{name}: {timeline.iteration_ms:.0f} ms", loc="left", fontsize=10, color=INK, pad=4)
        draw_compute(compute, timeline, [layer.name for layer in outcome.job.layers])
        if top > 0:
            draw_wire(wire, timeline, top)
    wire.set_xticks(nice_ticks(longest))
    wire.spines["bottom"].set_visible(True)
    wire.set_xlabel(
        "ms since the start of the backward pass; out and in: Gbit/s of the worker's host", fontsize=9
    )
    return figure


def longest_waits(timeline: Timeline, count: int) -> list[Interval]:
    return sorted(timeline.waits, key=lambda wait: wait[1] - wait[2])[:count]

#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Draws what `replay demo --json FIGURES --timeline TIMELINE` wrote.

Prints the finding in one sentence. Two arms, one above the other on the same time axis. Each shows
what the GPU computes and when it waits, and which layers' bytes arrive at the server and back at
the worker; beside uploads, also what these got of the link. Layers are coloured by the order in
which the next forward pass needs them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
# Text stays text, and the same input gives the same file.
matplotlib.rcParams.update(
    {"svg.fonttype": "none", "svg.hashsalt": "mercury", "font.family": "DejaVu Sans", "font.size": 10}
)

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.cm import ScalarMappable  # noqa: E402
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.patheffects import withStroke  # noqa: E402

# Needed first ... needed last.
COLOURS: Colormap = LinearSegmentedColormap.from_list(
    "need", ["#b5122b", "#f0803c", "#f6c95c", "#7fb7be", "#2f5d9b"]
)
INK = "#222222"
MUTED = "#666666"
LANE_BACKGROUND = "#f4f4f2"
WAIT_EDGE = "#b0b0b0"
SAVED = "#1a7f37"
LABEL_BOX = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.88}


@dataclass(frozen=True)
class Arm:
    """One arm of the comparison; times in ms from the start of the iteration."""

    name: str
    duration: float
    backward: list[tuple[int, float, float]]  # layer, start, end
    forward: list[tuple[int, float, float]]
    push: list[tuple[int, int, int]]  # bin, layer, bytes
    pull: list[tuple[int, int, int]]

    @property
    def forward_start(self) -> float:
        return min(start for _, start, _ in self.forward)

    @property
    def backward_end(self) -> float:
        return max(end for _, _, end in self.backward)


@dataclass(frozen=True)
class Timeline:
    """What both halves of the picture share."""

    layer_bytes: list[int]
    bin_ms: float
    rate_gbit: float

    def colour(self, layer: int) -> tuple[float, float, float, float]:
        return COLOURS(layer / max(1, len(self.layer_bytes) - 1))


def arm_from_json(name: str, data: dict[str, Any]) -> Arm:
    def spans(key: str) -> list[tuple[int, float, float]]:
        return [(int(layer), float(start), float(end)) for layer, start, end in data[key]]

    def samples(key: str) -> list[tuple[int, int, int]]:
        return [(int(bin_), int(layer), int(count)) for bin_, layer, count in data[key]]

    return Arm(
        name,
        float(data["iteration_ms"]),
        spans("backward"),
        spans("forward"),
        samples("push"),
        samples("pull"),
    )


def busy(spans: list[tuple[int, float, float]]) -> tuple[float, float]:
    """The longest stretch without a wait."""
    stretches: list[tuple[float, float]] = []
    for _, start, end in sorted(spans, key=lambda span: span[1]):
        if stretches and start - stretches[-1][1] < 1e-3:
            stretches[-1] = (stretches[-1][0], end)
        else:
            stretches.append((start, end))
    return max(stretches, key=lambda stretch: stretch[1] - stretch[0])


def gaps(arm: Arm) -> list[tuple[float, float]]:
    """When the GPU waits: between the computed layers."""
    spans = sorted((start, end) for _, start, end in arm.backward + arm.forward)
    return [
        (earlier[1], later[0]) for earlier, later in zip(spans, spans[1:]) if later[0] - earlier[1] > 1e-3
    ]


def joined(waits: list[tuple[float, float]], nearness: float) -> list[tuple[float, float, float]]:
    """Waits with next to nothing between them as one: start, end, time waited."""
    groups: list[tuple[float, float, float]] = []
    for start, end in waits:
        if groups and start - groups[-1][1] < nearness:
            groups[-1] = (groups[-1][0], end, groups[-1][2] + end - start)
        else:
            groups.append((start, end, end - start))
    return groups


def style_lane(axes: Axes, label: str) -> None:
    axes.set_facecolor(LANE_BACKGROUND)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="both", length=0, labelsize=8.5, labelcolor=MUTED)
    axes.text(
        -0.062, 0.5, label, transform=axes.transAxes, ha="right", va="center", color=INK, linespacing=1.35
    )


def draw_gpu(axes: Axes, arm: Arm, timeline: Timeline) -> None:
    style_lane(axes, "GPU")
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    edge = "white" if len(timeline.layer_bytes) <= 40 else "none"
    for layer, start, end in arm.backward + arm.forward:
        axes.barh(
            0.5, end - start, 0.72, left=start, color=timeline.colour(layer), edgecolor=edge, linewidth=0.4
        )
    waits = gaps(arm)
    for start, end in waits:
        axes.barh(
            0.5, end - start, 0.72, left=start, color="white", edgecolor=WAIT_EDGE, hatch="////", linewidth=0
        )

    room = 0.085 * axes.get_xlim()[1]  # what a label needs
    for text, spans in (("backward pass", arm.backward), ("forward pass", arm.forward)):
        start, end = busy(spans)
        if end - start > room:
            label_gpu(axes, (start + end) / 2, text, "normal")
    for start, end, waited in joined(waits, room / 7):
        if end - start > room:
            label_gpu(axes, (start + end) / 2, f"waits {waited:.0f} ms", "bold")


def label_gpu(axes: Axes, time: float, text: str, weight: str) -> None:
    axes.text(time, 0.5, text, ha="center", va="center", color=INK, fontsize=9, fontweight=weight, bbox=LABEL_BOX)


def draw_wire(axes: Axes, label: str, samples: list[tuple[int, int, int]], timeline: Timeline) -> None:
    """Stacked throughput, what is needed first at the bottom."""
    style_lane(axes, label)
    axes.set_ylim(0, timeline.rate_gbit * 1.04)
    axes.set_yticks([timeline.rate_gbit])
    axes.set_yticklabels([f"{timeline.rate_gbit:g} Gbit/s"])

    gbit_per_byte = 8 / (timeline.bin_ms * 1e6)
    stacked: dict[int, float] = {}
    pieces: dict[int, list[tuple[int, float, float]]] = {}  # layer: bin, bottom, height
    for bin_, layer, count in sorted(samples):
        bottom = stacked.get(bin_, 0.0)
        height = count * gbit_per_byte
        stacked[bin_] = bottom + height
        pieces.setdefault(layer, []).append((bin_, bottom, height))

    for layer, parts in pieces.items():
        # Neighbouring samples become one shape, without seams between them.
        run: list[tuple[int, float, float]] = []
        for part in [*parts, None]:
            if run and (part is None or part[0] != run[-1][0] + 1):
                edges = [bin_ * timeline.bin_ms for bin_, _, _ in run] + [(run[-1][0] + 1) * timeline.bin_ms]
                low = [bottom for _, bottom, _ in run]
                high = [bottom + height for _, bottom, height in run]
                axes.fill_between(
                    edges, [*low, low[-1]], [*high, high[-1]], step="post", color=timeline.colour(layer),
                    linewidth=0,
                )  # fmt: skip
                run = []
            if part is not None:
                run.append(part)

    largest = max(range(len(timeline.layer_bytes)), key=timeline.layer_bytes.__getitem__)
    share = timeline.layer_bytes[largest] / sum(timeline.layer_bytes)
    if share > 0.3 and largest in pieces:
        parts = pieces[largest]
        total = sum(height for _, _, height in parts)
        centre = sum((bin_ + 0.5) * height for bin_, _, height in parts) / total * timeline.bin_ms
        axes.text(
            centre, timeline.rate_gbit * 0.5,
            f"layer {largest + 1}: {timeline.layer_bytes[largest] / 1e6:.0f} MB",
            ha="center", va="center", fontsize=9, color="white", fontweight="bold",
            path_effects=[withStroke(linewidth=3, foreground=timeline.colour(largest))],
        )  # fmt: skip


def mark_time(lanes: Sequence[Axes], time: float, colour: str, style: str) -> None:
    for axes in lanes:
        axes.axvline(time, color=colour, linestyle=style, linewidth=1.1, zorder=5)


def draw_arm(
    lanes: Sequence[Axes], arm: Arm, heading: str, aside: str, timeline: Timeline, xmax: float
) -> None:
    for axes in lanes:
        axes.set_xlim(0, xmax)
        axes.set_xticks([])
    gpu, push, pull = lanes
    draw_gpu(gpu, arm, timeline)
    draw_wire(push, "gradients\nto the server", arm.push, timeline)
    draw_wire(pull, "parameters\nback from it", arm.pull, timeline)
    gpu.set_title(heading, loc="left", fontsize=11.5, fontweight="bold", color=INK, pad=7)
    gpu.set_title(aside, loc="right", fontsize=10, color=INK, pad=7)

    mark_time(lanes, arm.forward_start, INK, ":")
    place = arm.forward_start / xmax
    gpu.annotate(
        "layer 1 is back: the forward pass can start", xy=(arm.forward_start, 0),
        xytext=(0, -4), textcoords="offset points", fontsize=8.5, color=INK, va="top",
        ha="left" if place < 0.15 else "right" if place > 0.85 else "center", annotation_clip=False,
    )  # fmt: skip
    mark_time(lanes, arm.duration, INK, "-")


def plural(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def uploads_got(figures: dict[str, Any], arm: str, timeline: Timeline) -> str:
    """In one arm, on average; nothing if the job has the link to itself."""
    if not figures["uploads"]:
        return ""
    return f"uploads take {figures['arms'][arm]['upload_gbit']:.1f} of the {timeline.rate_gbit:g} Gbit/s"


def sentence_of(figures: dict[str, Any], timeline: Timeline, above: str, below: str) -> str:
    """The finding."""
    before, after = figures["iteration_ms"][above], figures["iteration_ms"][below]
    where = f"{figures['profile']['name']} over {timeline.rate_gbit:g} Gbit/s"
    if figures["uploads"]:
        where += f" beside {plural(figures['uploads'], 'upload')}"
    if before / after >= 1.02:
        return (
            f"{where}: an iteration takes {after:.0f} ms instead of {before:.0f} ({before / after:.2f}x)"
        )
    if after / before >= 1.02:
        return f"{where}: an iteration takes {after:.0f} ms and not {before:.0f}: slower"
    return f"{where}: {after:.0f} ms an iteration either way, hardly any of it waiting for the network"


def draw(
    figures: dict[str, Any], data: dict[str, Any], timeline: Timeline, above_name: str, below_name: str
) -> Figure:
    above = arm_from_json(above_name, data["arms"][above_name])
    below = arm_from_json(below_name, data["arms"][below_name])
    xmax = max(above.duration, below.duration) * 1.015

    figure = plt.figure(figsize=(12, 7.8))
    grid = figure.add_gridspec(
        9, 1, height_ratios=[0.62, 0.1, 1, 1, 0.42, 0.62, 0.1, 1, 1], hspace=0.1, left=0.135,
        right=0.975, top=0.85, bottom=0.165,
    )  # fmt: skip
    lanes = [figure.add_subplot(grid[row]) for row in (0, 2, 3, 5, 7, 8)]
    draw_arm(
        lanes[:3], above, "FIFO: whole layers, in the order in which they are ready",
        uploads_got(figures, above_name, timeline), timeline, xmax,
    )  # fmt: skip
    draw_arm(
        lanes[3:], below, "Mercury: what is needed first overtakes, and bytes come back as they arrive",
        uploads_got(figures, below_name, timeline), timeline, xmax,
    )  # fmt: skip

    bottom = lanes[-1]
    bottom.set_xticks(nice_ticks(xmax))
    bottom.set_xlabel("ms since the start of the backward pass", color=INK)

    # What the second arm saves, where its lanes are empty.
    if above.duration - below.duration > 0.08 * xmax:
        gpu = lanes[3]
        low, high = below.duration, above.duration
        gpu.annotate(
            "", xy=(low, 0.35), xytext=(high, 0.35),
            arrowprops={"arrowstyle": "<->", "color": SAVED, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
        gpu.text(
            (low + high) / 2, 0.5, f"{high - low:.0f} ms saved", ha="center", va="bottom", color=SAVED,
            fontweight="bold",
        )  # fmt: skip
        for axes in lanes[3:]:
            axes.axvline(high, color=SAVED, linestyle="--", linewidth=1.1)

    figure.text(
        0.02, 0.96, sentence_of(figures, timeline, above_name, below_name), fontsize=15,
        fontweight="bold", color=INK, va="center",
    )  # fmt: skip
    subtitle = (
        "The last layers' gradients are ready first but needed last. One iteration: backward pass, exchange "
        "with a parameter server, next forward pass."
    )
    if figures["uploads"]:
        subtitle += (
            "\nThe worker's link is shared: a checkpoint goes out all the time over "
            f"{plural(figures['uploads'], 'other connection')}, as fast as it is let."
        )
    figure.text(0.02, 0.935, subtitle, fontsize=10, color=MUTED, va="top", linespacing=1.5)

    scale = figure.add_axes((0.135, 0.062, 0.3, 0.018))
    bar = figure.colorbar(
        ScalarMappable(Normalize(1, len(timeline.layer_bytes)), COLOURS), cax=scale, orientation="horizontal"
    )
    bar.outline.set_visible(False)
    bar.set_ticks([1, len(timeline.layer_bytes)])
    bar.set_ticklabels(["layer 1: needed first", f"layer {len(timeline.layer_bytes)}: needed last"])
    scale.tick_params(length=0, labelsize=9, labelcolor=INK)
    for label, side in zip(scale.get_xticklabels(), ("left", "right")):
        label.set_horizontalalignment(side)
    notes = "\n".join(footnotes(figures["iteration_ms"]))
    figure.text(0.975, 0.068, notes, fontsize=9, color=MUTED, ha="right", va="center", linespacing=1.5)
    return figure


def footnotes(times: dict[str, float]) -> list[str]:
    """What else was measured, so that nobody takes the whole gain for the queue's."""
    notes = []
    if "overlap" in times:
        notes.append(f"FIFO whose bytes come back as they arrive: {times['overlap']:.0f} ms")
    same = [f"{name} {times[name]:.0f} ms" for name in ("pfifo", "fq") if name in times]
    if same:
        notes.append("Mercury's connections under " + ", under ".join(same))
    return [*notes, f"no order can beat max(compute, wire): {times['bound']:.0f} ms"]


def nice_ticks(xmax: float) -> list[float]:
    step = next(
        factor * 10.0**power
        for power in range(-3, 9)
        for factor in (1, 2, 5)
        if xmax / (factor * 10.0**power) <= 12
    )
    return [i * step for i in range(int(xmax / step) + 1)]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True, metavar="FIGURES")
    parser.add_argument("--timeline", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="the picture; .svg, .png or .pdf")
    parser.add_argument("--above", default="fifo", metavar="ARM")
    parser.add_argument("--below", default="mercury", metavar="ARM")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    figures = json.loads(arguments.json.read_text(encoding="utf-8"))
    data = json.loads(arguments.timeline.read_text(encoding="utf-8"))
    for name in (arguments.above, arguments.below):
        if name not in data["arms"]:
            print(f"{arguments.timeline} has no arm {name}", file=sys.stderr)
            return 1
    timeline = Timeline([layer["bytes"] for layer in data["layers"]], data["bin_ms"], data["rate_gbit"])
    figure = draw(figures, data, timeline, arguments.above, arguments.below)
    metadata = {"Date": None} if arguments.out.suffix == ".svg" else None
    figure.savefig(arguments.out, dpi=110, metadata=metadata)
    print(sentence_of(figures, timeline, arguments.above, arguments.below))
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""
Draws what run.py wrote, and prints it as a table: picture.py FIGURES PICTURE.

Above, how long a step takes each way; below, for which layers the forward pass of
CrossIteration waits, alone on the network.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams.update(
    {"svg.fonttype": "none", "svg.hashsalt": "mercury", "font.family": "DejaVu Sans", "font.size": 9}
)

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

COLOURS = ["#9aa5b1", "#4c78a8", "#f0803c", "#7fb7be", "#b5122b", "#c9b18b", "#1a7f37"]
Cells = dict[tuple[str, bool, str], dict]


def medians(document: dict) -> Cells:
    """Of the repeats of a cell."""
    groups: dict[tuple[str, bool, str], list[dict]] = {}
    for cell in document["cells"]:
        groups.setdefault((cell["model"], cell["bulk"], cell["variant"]), []).append(cell)
    cells = {}
    for key, same in groups.items():
        cells[key] = {
            "step_ms": statistics.median(one["step_ms"] for one in same),
            "range": (min(one["step_ms"] for one in same), max(one["step_ms"] for one in same)),
            "bulk_mbit": statistics.median(one["bulk_mbit"] for one in same),
            "waits_ms": {
                layer: statistics.median(one["waits_ms"][layer] for one in same)
                for layer in same[0]["waits_ms"]
            },
        }
    return cells


def ordered(cells: Cells, place: int) -> list:
    return list(dict.fromkeys(key[place] for key in cells))


def table(cells: Cells) -> str:
    columns = [(m, b) for m in ordered(cells, 0) for b in ordered(cells, 1)]
    names = [f"{model}, {'beside bulk' if bulk else 'alone'}" for model, bulk in columns]
    lines = ["| step, ms | " + " | ".join(names) + " |", "| --- " * (len(columns) + 1) + "|"]
    for variant in ordered(cells, 2):
        row = [cells.get((model, bulk, variant)) for model, bulk in columns]
        texts = [f"{cell['step_ms']:.0f}" if cell else "" for cell in row]
        lines.append(f"| {variant} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def draw_steps(axes: Axes, cells: Cells, model: str, bounds: dict | None) -> None:
    variants, bulks = ordered(cells, 2), ordered(cells, 1)
    width = 0.8 / len(bulks)
    for index, variant in enumerate(variants):
        for j, bulk in enumerate(bulks):
            cell = cells.get((model, bulk, variant))
            if cell is None:
                continue
            place = index + (j - (len(bulks) - 1) / 2) * width
            axes.barh(place, cell["step_ms"], width * 0.9, color=COLOURS[index % len(COLOURS)],
                      alpha=0.5 if bulk else 1.0)  # fmt: skip
            text = f" {cell['step_ms']:.0f}" + (" beside bulk" if bulk else "")
            axes.text(cell["step_ms"], place, text, va="center", fontsize=7)
    if bounds:
        axes.axvline(max(bounds.values()), color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(variants)), variants)
    axes.invert_yaxis()
    axes.set_xlim(right=axes.get_xlim()[1] * 1.25)
    axes.set_title(model, loc="left")
    axes.set_xlabel("a step, ms" + ("; dotted: the longer of computing and sending" if bounds else ""))


def draw_waits(axes: Axes, cells: Cells, model: str) -> None:
    for index, variant in enumerate(ordered(cells, 2)):
        cell = cells.get((model, False, variant))
        if cell and cell["waits_ms"]:
            waits = list(cell["waits_ms"].values())
            axes.plot(range(len(waits)), waits, color=COLOURS[index % len(COLOURS)], label=variant,
                      marker="o", markersize=3)  # fmt: skip
    axes.set_xlabel("layer, from the input")
    axes.set_ylabel("waited for, ms a step")
    axes.legend(fontsize=7)


def main() -> None:
    figures, picture = map(pathlib.Path, sys.argv[1:])
    document = json.loads(figures.read_text())
    cells = medians(document)
    models = ordered(cells, 0)
    figure, axes = plt.subplots(2, len(models), figsize=(6.5 * len(models), 8), squeeze=False,
                                gridspec_kw={"height_ratios": [1.6, 1]})  # fmt: skip
    for column, model in enumerate(models):
        draw_steps(axes[0][column], cells, model, document.get("bounds", {}).get(model))
        draw_waits(axes[1][column], cells, model)
    figure.suptitle(
        f"torch.distributed ({document['torch']}) on {document['hosts']} hosts at"
        f" {document['rate_mbit']:.0f} Mbit/s, computing {document['kind']}"
    )
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})
    print(table(cells))


if __name__ == "__main__":
    main()

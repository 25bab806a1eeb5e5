# SPDX-License-Identifier: GPL-2.0
"""What an operator sees in a real terminal, while two jobs and others want the link."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest

from screen import COLUMNS, CTL, LINES, Scene


@pytest.fixture
def scene(tmp_path: pathlib.Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.end()


def test_top_fits_80x24_and_names_everything(scene: Scene) -> None:
    scene.screen.start(CTL, "top", "eth0")
    scene.keep_busy()
    shown = scene.screen.until(r"^ +2 +all .*\[#+ *\]")
    lines = shown.rstrip("\n").split("\n")
    assert len(lines) <= LINES and all(len(line) <= COLUMNS for line in lines)
    assert re.match(r"mercuryctl top  eth0 1: \(1 of 1\)  jobs active 2 of 4 ", lines[0])
    assert re.match(r"sent [0-9.]+ Mbit/s of 20mbit \[#+ *\]", lines[1])
    rows = [line.split()[:2] for line in lines[6:] if line]
    assert [row for row in rows if row[1] == "all"] == [["1", "all"], ["2", "all"]]
    scene.screen.press("q")
    scene.screen.until("^ended")


def test_jobs_fit_whatever_they_are_called(scene: Scene) -> None:
    scene.screen.start(CTL, "jobs")
    shown = scene.screen.until("^ended")
    assert re.search(r"^DEVICE +JOB .* USER +NAME$", shown, re.M)
    assert re.search(r"^eth0 +1 +1 +none .* \d+ +\d+  64002  \S+$", shown, re.M)


def test_status_fits_as_well(scene: Scene) -> None:
    scene.screen.start(CTL, "status")
    shown = scene.screen.until("^ended")
    assert re.search(r"^DEVICE +QDISC ", shown)
    assert re.search(r"^eth0 +mercury 1: +20mbit +2/4 ", shown, re.M)
    assert re.search(r"^mercuryd \S+: up .* 2 jobs, 6 sockets marked, 0 errors$", shown, re.M)

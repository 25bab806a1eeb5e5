# SPDX-License-Identifier: GPL-2.0
"""A short form of scripts/bench-hints: everything is measured, and dead clients leave nothing."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

_TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MERCURY_BUILD", _TREE / "build/userspace"))


def test_assignments_are_measured_and_dead_clients_leave_nothing(tmp_path: pathlib.Path) -> None:
    result = tmp_path / "result.json"
    words = ["unshare", "--net", "/usr/bin/python3", _TREE / "tests/bench/hints/run.py"]
    words += [BUILD, result, "--sockets", "400", "--clients", "40", "--repeats", "2"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left by clients that were killed: nothing" in done.stdout
    found = json.loads(result.read_text())
    assert set(found["figures"]) == {"setsockopt", "round_trip", "one_job", "many_clients"}
    assert all(0 < one["median_us"] <= one["p99_us"] for one in found["figures"].values())
    assert len(found["repeats"]) == 2
    for repeat in found["repeats"]:
        assert (repeat["during"]["clients"], repeat["during"]["jobs"]) == (41, 2)
        assert repeat["during"]["sockets"] == 800
        assert repeat["left"] == {}

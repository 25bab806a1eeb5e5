# SPDX-License-Identifier: GPL-2.0
"""
libmercury as others get it: installed into a folder, found by pkg-config, used from C and C++.

    cmake -S userspace -B build/userspace && cmake --build build/userspace --target mercury
    /usr/bin/python3 -m pytest tests/hints
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest

_TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MERCURY_BUILD", _TREE / "build/userspace"))
HERE = pathlib.Path(__file__).parent


def run(*words: str | pathlib.Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", prefix, "--component", "hints")
    return prefix


def library_folder(prefix: pathlib.Path) -> pathlib.Path:
    (found,) = prefix.rglob("libmercury.so")
    return found.parent


@pytest.mark.parametrize(
    ("compiler", "source"),
    [(["cc", "-std=c99"], "program.c"), (["c++", "-std=c++17"], "program.cpp")],
)
def test_a_program_builds_and_runs_without_a_daemon(
    prefix: pathlib.Path, tmp_path: pathlib.Path, compiler: list[str], source: str
) -> None:
    folder = library_folder(prefix)
    flags = run(
        "pkg-config", "--cflags", "--libs", "mercury", PKG_CONFIG_PATH=str(folder / "pkgconfig")
    )
    program = tmp_path / "program"
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    run(*compiler, *strict, HERE / "installed" / source, "-o", program, *flags.split())
    said = run(program, LD_LIBRARY_PATH=str(folder), MERCURY_SOCKET="/nowhere/hints.sock")
    assert said == "2 classes, priority 2, no daemon at /nowhere/hints.sock: No such file or directory\n"


def test_it_shows_its_interface_and_nothing_else(prefix: pathlib.Path) -> None:
    library = library_folder(prefix) / "libmercury.so"
    symbols = run("nm", "-D", "--defined-only", library).split("\n")
    shown = {line.split()[2] for line in symbols if line and " A " not in line}
    header = (prefix / "include/mercury.h").read_text()
    declared = set(re.findall(r"\b(mercury_\w+)\(", header.split("#ifndef")[1]))
    assert {name.partition("@@")[0] for name in shown} == declared
    assert all(name.endswith("@@MERCURY_0") for name in shown)


def test_it_has_a_version_in_its_name(prefix: pathlib.Path) -> None:
    library = library_folder(prefix) / "libmercury.so"
    assert "libmercury.so.0" in run("objdump", "-p", library)

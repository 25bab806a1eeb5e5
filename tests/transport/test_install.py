# SPDX-License-Identifier: GPL-2.0
"""What `make install` installs works for programs that have nothing else of Mercury."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from test_program import BUILD

SOURCES = pathlib.Path(__file__).parent / "installed"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def run(*command: str | pathlib.Path, **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environment
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


class Installed:
    """In a folder of its own, as a package would have it or below a prefix."""

    def __init__(self, folder: pathlib.Path, prefix: str) -> None:
        install = ["cmake", "--install", BUILD, "--component", "transport", "--prefix"]
        if prefix:
            run(*install, prefix, DESTDIR=str(folder))
        else:
            run(*install, folder)
        self.root = folder / prefix.lstrip("/")
        self.library = next(self.root.glob("lib/**/libmercury_transport.so"))
        if re.search(r"lib(asan|tsan|ubsan)", run("readelf", "-d", self.library)):
            pytest.skip("no program can load a library with sanitizers")
        self.path = {"LD_LIBRARY_PATH": str(self.library.parent)}

    def pkg_config(self, *words: str) -> list[str]:
        folder = self.library.parent / "pkgconfig"
        return run("pkg-config", *words, "mercury-transport", PKG_CONFIG_PATH=str(folder)).split()

    def compile(self, compiler: str, source: pathlib.Path, *options: str) -> pathlib.Path:
        program = source.with_suffix(".out")
        run(compiler, *options, *STRICT, source, *self.pkg_config("--cflags", "--libs"), "-o",
            program)
        return program


@pytest.fixture(scope="module", params=["", "/usr"], ids=["prefix", "DESTDIR"])
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"), request.param)


@pytest.fixture
def server(installed: Installed) -> Iterator[str]:
    """The address of the installed one."""
    program = subprocess.Popen(
        [installed.root / "sbin/mercury-server", "--listen", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    yield program.stderr.readline().rsplit(" ", 1)[1].strip()
    program.terminate()
    _, log = program.communicate()
    assert program.returncode == 0, log
    assert 'job "installed" is done' in log


def test_three_languages(installed: Installed, server: str, tmp_path: pathlib.Path) -> None:
    """A worker in C, one in C++ and one in Python are one job."""
    sources = [tmp_path / name for name in ("worker.c", "worker.cpp")]
    for source in sources:
        source.write_bytes((SOURCES / source.name).read_bytes())
    # The two have the same stem.
    c = installed.compile("cc", sources[0].rename(tmp_path / "c.c"), "-std=c11")
    cpp = installed.compile("c++", sources[1].rename(tmp_path / "cpp.cpp"), "-std=c++20")
    commands = [[c], [cpp], [sys.executable, SOURCES / "worker.py", installed.library]]
    workers = [
        subprocess.Popen(
            [*command, server, str(rank), str(len(commands))],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | installed.path,
        )
        for rank, command in enumerate(commands)
    ]
    for worker in workers:
        said, _ = worker.communicate()
        assert (worker.returncode, said) == (0, "the sum is right\n")


@pytest.mark.parametrize(
    "header",
    ["mercury/transport/worker.hpp", "mercury/transport/element.hpp",
     "mercury/transport/in_flight.hpp", "mercury/transport/marking_status.hpp",
     "mercury/common/result.hpp"],
)
def test_header(installed: Installed, tmp_path: pathlib.Path, header: str) -> None:
    """Each compiles alone, without the folders of this tree."""
    source = tmp_path / "alone.cpp"
    source.write_text(f"#include <{header}>\n")
    run("c++", "-std=c++20", *STRICT, "-Wconversion", "-Wshadow", "-fsyntax-only", source,
        *installed.pkg_config("--cflags"))


@pytest.mark.parametrize(
    "compiler", [["cc", "-std=c99", "-x", "c"], ["c++", "-std=c++11", "-x", "c++"]], ids=" ".join
)
def test_c_header(installed: Installed, tmp_path: pathlib.Path, compiler: list[str]) -> None:
    """It is C of 1999, and C++ of any age."""
    source = tmp_path / "alone.h"
    source.write_text("#include <mercury_transport.h>\n")
    run(*compiler, *STRICT, "-fsyntax-only", source, *installed.pkg_config("--cflags"))


def test_nothing_else_is_shown(installed: Installed) -> None:
    """Neither what is private nor what the library is made from can clash with a program."""
    symbols = run("nm", "-DC", "--defined-only", "--without-symbol-versions", installed.library)
    names = {line.split(" ", 2)[2] for line in symbols.splitlines()}
    public = re.compile(
        r"mercury_(transport|worker)_\w+$|mercury_in_flight$"
        r"|mercury::transport::(Worker::|default_marks|to_string|parse_)"
    )
    assert {name for name in names if not public.match(name)} <= {"MERCURY_TRANSPORT_0"}
    header = (installed.root / "include/mercury_transport.h").read_text()
    declared = set(re.findall(r"\b(mercury_(?:worker|transport|in)_\w+)\(", header))
    assert {name for name in names if name.startswith("mercury_")} == declared


def test_soname(installed: Installed) -> None:
    """It has the major version; the package's version is the library's."""
    dynamic = run("readelf", "-d", installed.library)
    version = installed.pkg_config("--modversion")[0]
    assert f"[libmercury_transport.so.{version.split('.', maxsplit=1)[0]}]" in dynamic
    assert installed.library.resolve().name == f"libmercury_transport.so.{version}"


def test_other_files(installed: Installed) -> None:
    """Man page and unit; the unit starts what was installed."""
    assert list(installed.root.glob("share/man/man8/mercury-server.8"))
    unit = next(installed.root.glob("lib/systemd/system/mercury-server.service")).read_text()
    assert re.search(r"^ExecStart=/\S+/sbin/mercury-server --token-file %d/token", unit, re.M)

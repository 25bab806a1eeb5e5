# SPDX-License-Identifier: GPL-2.0
"""
A real terminal of 80 columns and 24 lines: tmux runs a program, and says what is to be seen.

Run as a program in User-Mode Linux, it prints what docs/mercuryctl.md shows (scripts/capture-mercuryctl):
two training jobs and other traffic, which together want more than the link has.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import time

from lib.netns import Pair

from daemon import BUILD, Daemon, eventually
from trainer import PORT, Sink, Trainer

COLUMNS, LINES = 80, 24
CTL = BUILD / "cli/mercuryctl"


class Screen:
    def __init__(self, pair: Pair, folder: pathlib.Path, **environment: str) -> None:
        config = folder / "tmux.conf"
        config.write_text("set -g status off\n")
        # A server for each program: one that ends is there for a while.
        self._servers = itertools.count()
        self._server = ""
        self._tmux = ["tmux", "-f", str(config), "-S"]
        self._folder = folder
        self._inside = ["ip", "netns", "exec", pair.a.name]
        self._environment = os.environ | environment | {"LC_ALL": "C.UTF-8"}

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, self._server, *words], capture_output=True, text=True, env=self._environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *words: str | pathlib.Path) -> None:
        """What it shows stays when it has ended, before the word "ended"."""
        self._server = str(self._folder / f"tmux{next(self._servers)}")
        command = shlex.join([*self._inside, *map(str, words)]) + "; echo ended; exec sleep 1000"
        self._run("new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), command)

    def text(self) -> str:
        return self._run("capture-pane", "-p")

    def until(self, pattern: str) -> str:
        eventually(lambda: re.search(pattern, self.text(), re.M) is not None, pattern, 60)
        return self.text()

    def press(self, keys: str) -> None:
        self._run("send-keys", keys)

    def end(self) -> None:
        if self._server:
            subprocess.run([*self._tmux, self._server, "kill-server"], capture_output=True)


class Scene:
    """Everything that there is to see, in a folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.pair = Pair()
        self.daemon = Daemon(self.pair.a, folder)
        self.daemon.configure('[[device]]\nname = "eth0"\nrate = "20mbit"\njobs = 4\n')
        self.daemon.start()
        self._sink = Sink(self.pair.b)
        self._trainers = [self._trainer(name, user) for name, user in (("vgg16", 64002), ("other", 64003))]
        self._unmarked = self.pair.a.socket(2, 1)
        self._unmarked.connect((self.pair.B4, PORT))
        self._unmarked.setblocking(False)
        self.screen = Screen(self.pair, folder, MERCURY_SOCKET=self.daemon.socket)

    def _trainer(self, name: str, user: int) -> Trainer:
        trainer = Trainer(self.pair, self.daemon.socket, user=user)
        trainer.job(name, 4)
        for index, layer in enumerate((0, 13, 15)):
            trainer.open(layer, PORT, self.pair.B4)
            trainer.send(index, 64 << 20)
        return trainer

    def keep_busy(self) -> None:
        """What nobody marked, for as long as its buffer has room."""
        try:
            while self._unmarked.send(bytes(1 << 16)):
                pass
        except BlockingIOError:
            pass

    def end(self) -> None:
        self.screen.end()
        for trainer in self._trainers:
            trainer.die()
        self._unmarked.close()
        self._sink.close()
        self.daemon.stop()
        self.pair.delete()


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary, "scene/own")  # a Daemon opens two above it to others
        folder.mkdir(parents=True)
        scene = Scene(folder)
        for words in (["status"], ["jobs"], ["top", "eth0"]):
            scene.screen.start(CTL, *words)
            for _ in range(10):  # top's figures are of its last seconds
                scene.keep_busy()
                time.sleep(0.5)
            shown = scene.screen.text().rstrip().removesuffix("ended").rstrip()
            print(f"$ mercuryctl {' '.join(words)}\n{shown}\n")
            scene.screen.end()
        scene.end()


if __name__ == "__main__":
    main()

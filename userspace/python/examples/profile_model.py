#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""
What each layer of a model computes and sends, for `mercuryctl plan`, `scripts/demo` and the deadlines
of Scheduler(profile=...). Needs no network.

    python3 profile_model.py shapes.csv && mercuryctl plan shapes.csv
"""

from __future__ import annotations

import argparse

from mercury.torch import profile
from shapes import pictures, small_vgg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="the CSV to write")
    options = parser.parse_args()
    for layer in profile(small_vgg(), pictures(32, seed=1)[0], options.file):
        print(f"{layer.name:8} {layer.forward_ns / 1e6:8.3f} ms forward"
              f" {layer.backward_ns / 1e6:8.3f} ms backward {layer.bytes:10} bytes")  # fmt: skip


if __name__ == "__main__":
    main()

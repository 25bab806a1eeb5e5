# SPDX-License-Identifier: MIT
"""
torchrun by another name: `python -m mercury.run [OPTION...] -- TRAIN.py [ARGUMENT...]`.

OPTIONs are those of torchrun (`python -m mercury.run --help`), and nothing else is set up. It runs
the ranks with the very interpreter that it was started with, where torchrun has that of its first line,
and works with Debian 12's PyTorch, where torchrun does not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(words: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if words is None else words)
    try:
        from torch.distributed.run import main as torchrun
    except ImportError as problem:
        sys.exit(f"mercury.run: PyTorch has no torchrun here: {problem}")
    _mend()
    if "--" in words:  # which torchrun does not take
        words.remove("--")
    torchrun(words)


def _mend() -> None:
    """
    Debian 12's PyTorch 1.13 does not know Python 3.11, where a flag that is 0 is left out when all are
    listed: torchrun finds no name for its own default of --redirects and --tee, and ends.
    """
    from torch.distributed.elastic.multiprocessing import Std

    if Std.from_str("0") is not None:
        return
    lookup = Std.from_str

    def from_str(words: str) -> object:
        found = lookup(words)
        if isinstance(found, dict):
            return {rank: std or Std.NONE for rank, std in found.items()}
        return found or Std.NONE

    Std.from_str = from_str


if __name__ == "__main__":
    main()

"""Fuzz the compiled decoder: ``python -m tests.fuzz --seconds 30``."""

from __future__ import annotations

import sys

from .command import main
from .decoder import DECODER

if __name__ == "__main__":
    sys.exit(main(DECODER, sys.argv[1:]))

"""Word count with zkconsumer: ``python -m bench.streams.words_app SETTINGS``.

``SETTINGS`` is the JSON that ``applications.Run.to_json`` returns.
"""

from __future__ import annotations

import json
import sys

from bench.streams.streams_app import run_topology
from examples.word_count import create_topology

if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    run_topology(create_topology(settings["input"], settings["output"]), settings)

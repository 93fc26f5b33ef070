"""Virtual environments of the Python applications, in the user's cache directory."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from zkconsumer.devcluster.java import CACHE_VARIABLE, cache_folder, make_directory

#: Pip requirements of each application.
REQUIREMENTS = {
    "faust": ("faust-streaming==0.15.3", "aiokafka==0.14.0", "rocksdict==0.3.29"),
    "quixstreams": ("quixstreams==3.28.1", "confluent-kafka==2.12.2", "rocksdict==0.3.29"),
}


def find_python(name: str) -> Path:
    """Return the Python interpreter of an environment. The first call creates the environment."""
    requirements = REQUIREMENTS[name]
    checksum = hashlib.sha256(" ".join([sys.version, *requirements]).encode()).hexdigest()[:8]
    parent = make_directory(cache_folder() / "bench-environments", CACHE_VARIABLE)
    folder = parent / f"{name}-{checksum}"
    ready = folder / "ready"
    if not ready.exists():
        print(f"installing {', '.join(requirements)}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        command: list[str | Path] = [
            folder / "bin" / "python",
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
        ]
        subprocess.run([*command, *requirements], check=True)
        ready.touch()
    return folder / "bin" / "python"

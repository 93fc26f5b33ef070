"""The parts of the build that setup.cfg cannot say: the compiled modules, and the description for package indexes.

The extensions are mandatory, because falling back to the modules in Python in silence would make every
executor tens of times slower. ``ZKCONSUMER_PURE=1`` builds without them, for platforms with no compiler.
"""

import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

from setuptools import Extension, setup

MODULES = (
    "zkconsumer._message",
    "zkconsumer.broker._transfer",
    "zkconsumer.fetcher._decode",
    "zkconsumer.topology.loop._loop",
    "zkconsumer.topology.stores._pages",
)
HEADERS = [
    "zkconsumer/_bytes.h",
    "zkconsumer/_columns.h",
    "zkconsumer/_objects.h",
    "zkconsumer/_tuples.h",
    "zkconsumer/topology/loop/_codecs.h",
]
PURE = os.environ.get("ZKCONSUMER_PURE") == "1"


def extension(module: str) -> Extension:
    """Return the extension of a module that is one C file."""
    return Extension(
        module,
        sources=[f"{module.replace('.', '/')}.c"],
        depends=HEADERS,
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=["-O3", "-Wall", "-Wextra", "-std=c11"],
        # A small module may call no function of the C library, whose name tells auditwheel the platform of a wheel.
        extra_link_args=["-Wl,--no-as-needed", "-lc"] if sys.platform == "linux" else [],
        py_limited_api=True,
    )


#: Address of the published repository. Package indexes show links relative to it; without it, only their texts.
REPOSITORY = ""


def long_description() -> str:
    """Return the README for package indexes, which do not have the files that it links to."""
    text = Path(__file__).with_name("README.rst").read_text(encoding="utf-8")
    link = rf"`\1 <{REPOSITORY}/\2>`__" if REPOSITORY else r"\1"
    return re.sub(r"`([^`<]+?)\s+<(?!https?:)([^>]+)>`__", link, text)


def compiled_options(gil_disabled: int | None) -> dict[str, Any]:
    """Return the arguments of ``setup()`` for the compiled modules.

    Args:
        gil_disabled: value of the configuration variable ``Py_GIL_DISABLED`` of CPython.

    Raises:
        SystemExit: CPython is a free-threaded build, whose headers reject the limited API with a less clear error.
    """
    if gil_disabled:
        raise SystemExit("zkconsumer does not support free-threaded builds of CPython; use a build with the GIL")
    return {
        "ext_modules": [extension(module) for module in MODULES],
        "options": {"bdist_wheel": {"py_limited_api": "cp311"}},
    }


if __name__ == "__main__":
    setup(
        long_description=long_description(),
        long_description_content_type="text/x-rst",
        **({} if PURE else compiled_options(sysconfig.get_config_var("Py_GIL_DISABLED"))),
    )

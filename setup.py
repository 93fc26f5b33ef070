"""The one part of the build that setup.cfg cannot say: the compiled modules.

The extensions are mandatory, because falling back to the modules in Python in silence would make every
executor tens of times slower. ``ZKCONSUMER_PURE=1`` builds without them, for platforms with no compiler.
"""

import os

from setuptools import Extension, setup

MODULES = ("zkconsumer.fetcher._decode", "zkconsumer.topology._loop", "zkconsumer.topology.stores._pages")
PURE = os.environ.get("ZKCONSUMER_PURE") == "1"


def extension(module: str) -> Extension:
    """Return the extension of a module that is one C file."""
    return Extension(
        module,
        sources=[f"{module.replace('.', '/')}.c"],
        depends=["zkconsumer/_tuples.h", "zkconsumer/topology/_codecs.h"],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=["-O3", "-Wall", "-Wextra", "-std=c11"],
        py_limited_api=True,
    )


setup(
    ext_modules=[] if PURE else list(map(extension, MODULES)),
    options={} if PURE else {"bdist_wheel": {"py_limited_api": "cp311"}},
)

"""The one part of the build that setup.cfg cannot say: the compiled decoder.

The extension is mandatory, because falling back to the Python decoder in silence would make every
executor tens of times slower. ``ZKCONSUMER_PURE=1`` builds without it, for platforms with no compiler.
"""

import os

from setuptools import Extension, setup

PURE = os.environ.get("ZKCONSUMER_PURE") == "1"

setup(
    ext_modules=[]
    if PURE
    else [
        Extension(
            "zkconsumer.fetcher._decode",
            sources=["zkconsumer/fetcher/_decode.c"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            extra_compile_args=["-O3", "-Wall", "-Wextra", "-std=c11"],
            py_limited_api=True,
        )
    ],
    options={} if PURE else {"bdist_wheel": {"py_limited_api": "cp311"}},
)

"""Print the requirements of the package, one per line: ``python requirements.py setup.cfg [EXTRA ...]``."""

import configparser
import re
import sys
from collections.abc import Iterator

setup = configparser.ConfigParser(interpolation=None)
setup.read(sys.argv[1])


def requirements(extra: str) -> Iterator[str]:
    """Yield the requirements of an extra, and those of the extras that it includes."""
    for line in setup["options.extras_require"][extra].split():
        included = re.fullmatch(r"zkconsumer\[(.*)\]", line)
        if included is None:
            yield line
        else:
            for name in included[1].split(","):
                yield from requirements(name)


print(setup["options"]["install_requires"].strip())
for extra in sys.argv[2:]:
    print(*requirements(extra), sep="\n")

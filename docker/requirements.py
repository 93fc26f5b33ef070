"""Print the requirements of the package, one per line: ``python requirements.py setup.cfg [EXTRA]``."""

import configparser
import sys

setup = configparser.ConfigParser(interpolation=None)
setup.read(sys.argv[1])
print(setup["options"]["install_requires"].strip())
for extra in sys.argv[2:]:
    print(setup["options.extras_require"][extra].strip())

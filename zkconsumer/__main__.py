"""Run the command ``zkconsumer`` as ``python -m zkconsumer``."""

import sys

from zkconsumer.tools.cli import main

sys.exit(main())

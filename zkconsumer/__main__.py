"""``python -m zkconsumer`` is the command ``zkconsumer``."""

import sys

from zkconsumer.tools.cli import main

sys.exit(main())

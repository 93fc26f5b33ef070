"""Public path of the module ``zkconsumer.spark.dstreams.shim``, for ``python -m zkconsumer.spark.shim SCRIPT``."""

from zkconsumer.spark.dstreams.shim import install, main

__all__ = ["install", "main"]

if __name__ == "__main__":
    main()

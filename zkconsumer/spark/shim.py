from zkconsumer.spark.dstreams.shim import install, main

__all__ = ["install", "main"]

if __name__ == "__main__":
    main()

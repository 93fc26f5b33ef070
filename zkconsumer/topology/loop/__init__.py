"""Record processing: the types of records and columns, and the processing loop of a task, in C and in Python.

Other modules import the loop from ``native``, which selects the implementation.
"""

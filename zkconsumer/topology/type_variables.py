"""Type variables of serdes, streams and tables. They stand for the types of keys and values that are not None.

For static type checkers, each variable is ``Any`` by default. ``typing.TypeVar`` supports defaults since Python 3.13.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    KR = TypeVar("KR", default=Any)
    VR = TypeVar("VR", default=Any)
    VO = TypeVar("VO", default=Any)
    A = TypeVar("A", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")
    #: Keys and values of a stream or table, and keys and values that a function returns.
    K, V, KR, VR = TypeVar("K"), TypeVar("V"), TypeVar("KR"), TypeVar("VR")
    #: Values of the other stream or table of a join.
    VO = TypeVar("VO")
    #: Aggregates.
    A = TypeVar("A")

"""Replies decoded and validated: what comes out has one finite row for each input, or nothing comes out.

Pure. A vector arrives as JSON numbers or as base64 of little-endian float32, whatever was asked for: an
engine that does not know ``encoding_format`` ignores it.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING

from embedkit.errors import ResponseInvalid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from embedkit.providers.provider import Vectors

    Row = NDArray[np.float32]

_NUMBERS = frozenset({int, float})
_FLOAT32_BYTES = 4
_ABSENT = object()
_SHOWN = 10_000


def read_openai_vectors(document: object, inputs: int, dimension: int | None) -> Vectors:
    """The vectors of an OpenAI-style reply: ``data[]`` of ``{index, embedding}``.

    Args:
        document: The parsed reply.
        inputs: How many inputs were sent.
        dimension: What every row must have, where that is known; else all rows must agree.

    Returns:
        ``(inputs, dimension) float32``, C-contiguous; row i for input i: placed by ``index``, which must run
        from 0 without gaps or repeats, or by position where no item has one. It may be left out where it is 0.

    Raises:
        ResponseInvalid: anything else. It names the input at fault where there is one.
    """
    items = _list_under(document, "data", inputs)
    order = _order(items)
    return _stack([_field(item, index) for item, index in zip(items, order, strict=True)], order, dimension)


def read_ollama_vectors(document: object, inputs: int, dimension: int | None) -> Vectors:
    """The vectors of an Ollama-style reply, ``embeddings[][]``, by position; see ``read_openai_vectors``."""
    rows = _list_under(document, "embeddings", inputs)
    return _stack(rows, range(inputs), dimension)


def read_gemini_vectors(document: object, inputs: int, dimension: int | None) -> Vectors:
    """The vectors of a Gemini reply, ``embeddings[].values``, by position; see ``read_openai_vectors``."""
    items = _list_under(document, "embeddings", inputs)
    rows = [item.get("values") if isinstance(item, dict) else None for item in items]
    return _stack(rows, range(inputs), dimension)


def empty_vectors(dimension: int | None) -> Vectors:
    """What no inputs embed to: ``(0, dimension) float32``."""
    import numpy as np

    return np.empty((0, dimension or 0), dtype=np.float32)


def _list_under(document: object, key: str, inputs: int) -> list[object]:
    found = document.get(key) if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise ResponseInvalid(f"the reply has no list {key!r}")
    if len(found) != inputs:
        first_missing = len(found) if len(found) < inputs else None
        raise ResponseInvalid(f"the reply has {len(found)} vectors for {inputs} inputs", input_index=first_missing)
    return found


def _order(items: Sequence[object]) -> Sequence[int]:
    """For each item the input it belongs to."""
    indexes = [_index_of(item) for item in items]
    if all(index is None or index is _ABSENT for index in indexes):
        return range(len(items))
    if len(items) > 1 and sum(index is _ABSENT for index in indexes) == 1:
        # Encoders that leave out what is zero leave out the first input's index. It is that only if all the others are
        # there: an index that is missing for any other reason leaves 0 among them, or a gap, and is refused below.
        indexes = [0 if index is _ABSENT else index for index in indexes]
    placed: set[int] = set()
    for position, index in enumerate(indexes):
        if type(index) is not int:
            raise ResponseInvalid(f"item {position} of the reply has no usable index", input_index=position)
        if not 0 <= index < len(items):
            # Not quoted where it is long: it came from the other side, and may be anybody's number.
            what = f"index {index}" if abs(index) < _SHOWN else "an index far out of range"
            raise ResponseInvalid(f"the reply has {what} for {len(items)} inputs", input_index=position)
        if index in placed:
            raise ResponseInvalid(f"the reply has index {index} twice", input_index=index)
        placed.add(index)
    return [index for index in indexes if type(index) is int]


def _index_of(item: object) -> object:
    return item.get("index", _ABSENT) if isinstance(item, dict) else None


def _field(item: object, index: int) -> object:
    if not isinstance(item, dict):
        raise ResponseInvalid(f"the reply has no vector for input {index}", input_index=index)
    return item.get("embedding")


def _stack(values: Sequence[object], order: Sequence[int], dimension: int | None) -> Vectors:
    import numpy as np

    if not values:
        return empty_vectors(dimension)
    rows = [_row(value, index) for value, index in zip(values, order, strict=True)]
    width = dimension if dimension is not None else len(rows[0])
    for row, index in zip(rows, order, strict=True):
        if len(row) != width:
            raise ResponseInvalid(
                f"the vector of input {index} has {len(row)} dimensions, not {width}", input_index=index
            )
    vectors = np.empty((len(rows), width), dtype=np.float32)
    for row, index in zip(rows, order, strict=True):
        vectors[index] = row
    finite = np.isfinite(vectors)
    if not finite.all():
        index = int(np.argmin(finite.all(axis=1)))
        raise ResponseInvalid(f"the vector of input {index} holds a number that is not finite", input_index=index)
    return vectors


def _row(value: object, index: int) -> Row:
    if isinstance(value, str):
        return _row_of_base64(value, index)
    if isinstance(value, list):
        return _row_of_numbers(value, index)
    raise ResponseInvalid(f"the reply has no vector for input {index}", input_index=index)


def _row_of_base64(text: str, index: int) -> Row:
    import numpy as np

    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise ResponseInvalid(f"the vector of input {index} is not base64", input_index=index) from None
    if not raw or len(raw) % _FLOAT32_BYTES:
        raise ResponseInvalid(
            f"the vector of input {index} has {len(raw)} bytes, which are no float32 numbers",
            input_index=index,
        )
    return np.frombuffer(raw, dtype="<f4")


def _row_of_numbers(numbers: list[object], index: int) -> Row:
    import numpy as np

    # By type, not by conversion: numpy takes True, "1.5" and a nested list of one for numbers.
    if not numbers or not _NUMBERS.issuperset(map(type, numbers)):
        what = "is empty" if not numbers else "holds something that is not a number"
        raise ResponseInvalid(f"the vector of input {index} {what}", input_index=index)
    try:
        with np.errstate(over="ignore"):
            # Too large for float32 is infinite, and is found with the rest that is not finite.
            return np.array(numbers, dtype=np.float32)
    except OverflowError:
        raise ResponseInvalid(f"the vector of input {index} holds a number out of range", input_index=index) from None

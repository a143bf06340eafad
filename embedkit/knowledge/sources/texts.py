"""From the bytes of a file to the document that is cut into chunks."""

from __future__ import annotations

from embedkit.errors import SourceError
from embedkit.knowledge.model import Document
from embedkit.knowledge.sources import notebooks
from embedkit.knowledge.sources.encodings import decode, encoding_of


def document_of(path: str, content_hash: str, data: bytes) -> Document:
    """The document at ``path``.

    Raises:
        SourceError: The bytes are no text in any encoding.
    """
    encoding = encoding_of(data)
    if encoding is None:
        raise SourceError(f"{path}: is in no encoding that can be told")
    text = decode(data, encoding)
    if path.endswith(".ipynb"):
        text = notebooks.as_text(text)
    return Document(path, text, content_hash=content_hash, encoding=encoding)

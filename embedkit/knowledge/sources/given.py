"""Texts that are in no folder: documents that were given, as a snapshot that says nothing of others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from embedkit.errors import UsageError
from embedkit.knowledge.metadata import checked
from embedkit.knowledge.model import Document
from embedkit.knowledge.sources.source import Entry, Listed, Listing, Sighting, Unread

_LONGEST_PATH: Final = 1024  # characters


@attrs.frozen(kw_only=True)
class GivenSnapshot(Listed):
    """Documents that were given together; what else is stored of their repository stays."""

    documents: Mapping[str, Document] = attrs.field(repr=False)

    def read(self, entry: Entry) -> Document:
        """The document; see ``Snapshot.read``."""
        return self.documents[entry.path]


def snapshot_of(documents: Iterable[Document], max_bytes: int) -> GivenSnapshot:
    """The documents, the last of each path; one whose text is larger than ``max_bytes`` is left out."""
    listing = Listing()
    latest = {document.path: document for document in documents}
    for path, document in latest.items():
        if len(document.text.encode()) > max_bytes:
            listing.add(path, Sighting("", None, "oversized"), path)
        else:
            listing.add(path, Sighting("", document.content_hash), path)
    listed = listing.done()
    return GivenSnapshot(
        revision=listed.revision,
        entries=listed.entries,
        sightings=listed.sightings,
        left_out=listed.left_out,
        unread=Unread(folders=("",), is_meant=True),  # nothing is known of any other path, so nothing is gone
        documents=latest,
    )


def check_document(document: object) -> Document:
    """``document``, if it can be stored.

    Raises:
        UsageError: It is none, or its path, text or metadata cannot be kept.
    """
    if not isinstance(document, Document):
        raise UsageError(f"index takes Document(path, text, metadata), not {type(document).__name__}")
    # What a type checker would refuse comes from programs that have none.
    path: object = document.path
    text: object = document.text
    if not isinstance(path, str) or not path.strip() or not path.isprintable() or len(path) > _LONGEST_PATH:
        raise UsageError(f"path is {ascii(path)[:80]}: a document's path is text in one line, of 1 to 1,024 characters")
    if not isinstance(text, str):
        raise UsageError(f"{path}: text is {type(text).__name__}; a document's text is a string")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{path}: text holds half of a character (a lone surrogate); it cannot be stored") from None
    try:
        checked(document.metadata)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return document

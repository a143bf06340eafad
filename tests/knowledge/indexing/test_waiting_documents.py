"""Which documents wait for what: each input is asked for once, and each document is ready once, with its last input."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from knowledge_base import prepared

from embedkit.knowledge.indexing.waiting_documents import WaitingDocuments
from embedkit.knowledge.storing.prepared import PreparedDocument

LETTERS = "abcdef"


def hashes(document: PreparedDocument) -> set[bytes]:
    return {part.hash for part in document.chunks}


def halves_of(document: PreparedDocument, text: str) -> PreparedDocument:
    """The document with two other texts in place of one."""
    texts = [part.chunk.text for part in document.chunks]
    return prepared(
        document.path, *(piece for word in texts for piece in ([f"{word}1", f"{word}2"] if word == text else [word]))
    )


@given(st.lists(st.lists(st.sampled_from(LETTERS), min_size=1, max_size=4), max_size=6), st.data())
def test_every_document_is_ready_once_whatever_arrives_is_left_out_or_comes_in_halves(
    texts: list[list[str]], data: st.DataObject
) -> None:
    wanted = WaitingDocuments()
    asked: list[bytes] = []
    settled: set[bytes] = set()
    fenced: set[bytes] = set()
    ready: list[str] = []

    def enter(document: PreparedDocument) -> None:
        missing = hashes(document) - settled - fenced
        asked.extend(wanted.enter(document, set(missing), fenced))
        if not missing:
            ready.append(document.path)

    documents = {str(number): prepared(str(number), *words) for number, words in enumerate(texts)}
    for document in documents.values():
        enter(document)
    queue = list(asked)
    while queue:
        hash_ = queue.pop(data.draw(st.integers(0, len(queue) - 1)))
        text = next(part.chunk.text for d in documents.values() for part in d.chunks if part.hash == hash_)
        fate = data.draw(st.sampled_from(["arrives", "is left out", "comes in halves"]))
        if fate == "comes in halves" and len(text) == 1:
            asked.remove(hash_)
            before = len(asked)
            for document in wanted.withdraw(hash_):
                documents[document.path] = halves_of(document, text)
                enter(documents[document.path])
            queue += asked[before:]
        elif fate == "is left out":
            fenced.add(hash_)
            asked.remove(hash_)
            ready += [document.path for document in wanted.left_out([hash_])]
        else:
            settled.add(hash_)
            ready += [document.path for document in wanted.arrived([hash_])]
    assert Counter(ready) == Counter(documents.keys())
    assert len(asked) == len(set(asked))
    chunks = [part.hash for document in documents.values() for part in document.chunks]
    assert wanted.reused == sum(hash_ not in fenced for hash_ in chunks) - len(asked)
    assert wanted.arrived_lately == settled | fenced

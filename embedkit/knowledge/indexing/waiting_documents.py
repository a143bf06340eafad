"""Which documents wait for which inputs, in one repository's run. Pure.

An input that several documents need is asked for once. A document is ready when nothing is missing to it any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

import attrs

from embedkit.knowledge.storing.prepared import PreparedDocument


@attrs.define(eq=False)
class _Open:
    """A document that waits for inputs."""

    document: PreparedDocument
    missing: set[bytes]
    stored: int


class WaitingDocuments:
    """The documents of one run that have been entered, and what they wait for.

    Attributes:
        arrived_lately: Inputs that arrived in this round: what a look-up that began before they were stored does not
            know of.
    """

    def __init__(self) -> None:
        self.arrived_lately: set[bytes] = set()
        # An input stands here as long as it is queued, out, or about to be.
        self._waiting: dict[bytes, list[_Open]] = {}
        self._stored = 0
        self._asked = 0

    def __contains__(self, hash_: bytes) -> bool:
        """Whether some document waits for it."""
        return hash_ in self._waiting

    @property
    def reused(self) -> int:
        """Chunks whose vector is not asked for on their account: it was there, or another chunk has the same input."""
        return self._stored - self._asked

    def enter(self, document: PreparedDocument, missing: set[bytes], fenced: Set[bytes]) -> list[bytes]:
        """Let ``document`` wait for ``missing``.

        Args:
            document: New.
            missing: Its inputs that have no vector and no fence.
            fenced: Inputs whose chunks are left out.

        Returns:
            Those of ``missing`` that nobody waits for yet, in the document's order: they are to be bought.
        """
        waiter = _Open(document, missing, sum(part.hash not in fenced for part in document.chunks))
        new = [hash_ for hash_ in dict.fromkeys(_hashes(document)) if hash_ in missing and hash_ not in self._waiting]
        for hash_ in missing:
            self._waiting.setdefault(hash_, []).append(waiter)
        self._stored += waiter.stored
        self._asked += len(new)
        return new

    def waiting_for(self, hash_: bytes) -> Sequence[PreparedDocument]:
        """The documents that ``hash_`` is missing to."""
        return [waiter.document for waiter in self._waiting[hash_]]

    def arrived(self, hashes: Iterable[bytes]) -> list[PreparedDocument]:
        """The documents that are ready now that these inputs have vectors."""
        ready = []
        for hash_ in hashes:
            self.arrived_lately.add(hash_)
            for waiter in self._waiting.pop(hash_):
                waiter.missing.remove(hash_)
                if not waiter.missing:
                    ready.append(waiter.document)
        return ready

    def left_out(self, hashes: Iterable[bytes]) -> list[PreparedDocument]:
        """The documents that are ready now that the chunks with these inputs are not to be stored."""
        hashes = list(hashes)
        for hash_ in hashes:
            self._asked -= 1
            for waiter in self._waiting[hash_]:
                found = _hashes(waiter.document).count(hash_)
                waiter.stored -= found
                self._stored -= found
        return self.arrived(hashes)

    def withdraw(self, hash_: bytes) -> list[PreparedDocument]:
        """Take out the documents that wait for ``hash_``, which is not to be bought; other inputs of theirs still are.

        They are to be entered again, in another shape.
        """
        waiters = self._waiting.pop(hash_)
        self._asked -= 1
        for waiter in waiters:
            self._stored -= waiter.stored
            for other in waiter.missing - {hash_}:
                self._waiting[other].remove(waiter)
        return [waiter.document for waiter in waiters]


def _hashes(document: PreparedDocument) -> list[bytes]:
    return [part.hash for part in document.chunks]

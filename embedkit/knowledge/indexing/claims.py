"""What the repositories of one tenant are buying, in one sweep: an input that one of them buys, the others wait for.

A repository waits only when it has bought all that it could by itself, and has no claim left: so nobody waits for
somebody who waits for him.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio


class Claims:
    """The claims of one tenant's repositories on inputs."""

    def __init__(self) -> None:
        # An event only where somebody waits for the claim's end.
        self._claims: dict[bytes, trio.Event | None] = {}

    def claim(self, hashes: Iterable[bytes]) -> set[bytes]:
        """Claim those that nobody has claimed, and return them. They must be released, whatever becomes of them."""
        claimed = {hash_ for hash_ in hashes if hash_ not in self._claims}
        self._claims.update(dict.fromkeys(claimed))
        return claimed

    def release(self, hashes: Iterable[bytes]) -> None:
        """Those who claimed ``hashes`` have stored them, or will not."""
        for hash_ in hashes:
            ended = self._claims.pop(hash_)
            if ended is not None:
                ended.set()

    async def released(self, hashes: Iterable[bytes]) -> None:
        """Wait until none of ``hashes`` is claimed as it is now.

        Cancellation:
            Changes nothing.
        """
        await trio.lowlevel.checkpoint()
        for hash_ in list(hashes):
            if hash_ in self._claims:
                ended = self._claims[hash_]
                if ended is None:
                    ended = self._claims[hash_] = trio.Event()
                await ended.wait()

"""The matrices of the tenants that were searched lately, within a bound of memory.

Tests: tests/knowledge/searching/test_matrices.py.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from embedkit.knowledge.searching.matrix import TenantMatrix

MOST_BYTES: Final = 1 << 29
"""Of all vectors that are held, but for those of the tenant that was searched last."""


class Matrices:
    """Matrices by tenant; what was not used for longest goes first. May be used from several threads.

    Args:
        most: Bytes of vectors.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._lock = threading.Lock()  # searches of several tenants go on in threads of their own
        self._held: dict[int, TenantMatrix] = {}  # the latest used stands last

    def get(self, tenant_id: int) -> TenantMatrix | None:
        """The tenant's matrix as it was read last, if it is held."""
        with self._lock:
            return self._held.get(tenant_id)

    def put(self, tenant_id: int, matrix: TenantMatrix) -> None:
        """Hold the tenant's matrix, which was just used, and let others go."""
        with self._lock:
            self._held.pop(tenant_id, None)
            self._held[tenant_id] = matrix
            size = sum(held.vectors.nbytes for held in self._held.values())
            for other in [number for number in self._held if number != tenant_id]:
                if size <= self._most:
                    break
                size -= self._held.pop(other).vectors.nbytes

    def drop(self, tenant_id: int) -> None:
        """The tenant has been forgotten."""
        with self._lock:
            self._held.pop(tenant_id, None)

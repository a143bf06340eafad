"""The house: imports point down its list only, libraries stay in their rooms, and pure files are pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attrs
import pytest

import embedkit
from embedkit import errors

ROOT = Path(embedkit.__file__).parent

# From the bottom up. A file may import its own floor and those below it.
FLOORS = (
    ("errors", "clocks"),
    ("database_errors", "database_opening", "database_rows", "database_copying", "database"),
    ("settings",),
    ("activity",),
    ("admission",),
    ("probing",),
    ("providers",),
    ("knowledge",),
    ("engine",),
    ("sweep",),
    ("ask",),
    ("doctor",),
    ("gateway",),
    ("surfaces",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

# The rooms within a room, from the bottom up. Documents flow from sources to the store; the store, which is what the
# indexing writes to and who searches asks, stands between the two.
WITHIN = {"knowledge": ("metadata", "model", "sources", "chunking", "searching", "storing", "indexing")}

# Which rooms, or files, may import a library at all.
AT_HOME = {
    "httpx": ("providers/http.py",),
    "h11": ("providers/http.py", "providers/http1.py", "gateway/inbound.py"),
    "cattrs": ("settings/",),
}

# Files that decide and do not act, besides those whose docstring says "Pure".
PURE = (
    "errors.py", "settings/", "admission/order.py", "admission/fair_order.py", "admission/fair_share.py",
    "admission/room.py", "admission/waiting.py", "admission/statistics.py", "sweep/schedule.py", "sweep/outcome.py",
    "sweep/successor.py", "knowledge/searching/ranking.py", "clocks.py", "activity/histogram.py",
)  # fmt: skip
IMPURE = frozenset({"trio", "asyncio", "anyio", "threading", "httpx", "h11", "sqlite3"})


@attrs.frozen
class Module:
    """One file of the package: where, below the package's folder, and what it says."""

    place: str
    tree: ast.Module

    @classmethod
    def of(cls, place: str, source: str) -> Module:
        return cls(place, ast.parse(source))

    @property
    def room(self) -> str:
        return self.place.split("/", 1)[0].removesuffix(".py")

    @property
    def is_pure(self) -> bool:
        said = ast.get_docstring(self.tree) or ""
        return self.place.startswith(PURE) or "Pure." in said or "Pure:" in said

    def imports(self, *, at_run_time: bool = False) -> Iterator[str]:
        """Full names of what it imports, wherever the statement stands; ``from a import b`` is ``a.b``."""
        skipped = _typing_only(self.tree) if at_run_time else set()
        for node in ast.walk(self.tree):
            if node in skipped:
                continue
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.place}: imports are absolute"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _typing_only(tree: ast.Module) -> set[ast.AST]:
    """Everything below ``if TYPE_CHECKING:``."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {inner for block in blocks for statement in block.body for inner in ast.walk(statement)}


@cache
def modules() -> list[Module]:
    files = sorted(ROOT.rglob("*.py"))
    return [Module.of(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")) for file in files]


def upward(module: Module) -> list[str]:
    """Imports of embedkit's own that point up, or into nowhere."""
    if module.place in ("__init__.py", "__main__.py"):
        return []
    found = []
    for name in module.imports(at_run_time=module.room != "testing"):
        parts = name.split(".")
        if parts[0] != "embedkit":
            continue
        room = parts[1] if len(parts) > 1 else ""
        if room == "__version__":  # the package's own, which decides nothing
            continue
        if module.room == "testing":  # the public surface
            legal = room in ("testing", *embedkit.__all__)
        else:
            legal = room in FLOOR and FLOOR[room] <= FLOOR.get(module.room, -1)
        if not legal:
            found.append(f"{module.place} imports {name}")
    return found


def upward_within(module: Module) -> list[str]:
    """Imports of a room's own rooms that point up, or into none."""
    rooms = WITHIN.get(module.room, ())
    place = module.place.split("/")
    if not rooms or (place[-1] == "__init__.py" and len(place) == 2):
        return []
    own = place[1].removesuffix(".py")
    found = [] if own in rooms else [f"{module.place} is in no room of {module.room}"]
    for name in module.imports():
        parts = name.split(".")
        if parts[:2] == ["embedkit", module.room] and own in rooms:
            inner = parts[2] if len(parts) > 2 else ""
            if inner not in rooms or rooms.index(inner) > rooms.index(own):
                found.append(f"{module.place} imports {name}")
    return found


def astray(module: Module) -> list[str]:
    """Imports of libraries that have a room of their own, from elsewhere; types count as well."""
    found = []
    for name in module.imports():
        homes = AT_HOME.get(name.split(".")[0])
        if homes is not None and not module.place.startswith(homes):
            found.append(f"{module.place} imports {name}")
    return found


def acting(module: Module) -> list[str]:
    """What a pure file imports that acts."""
    if not module.is_pure:
        return []
    return [
        f"{module.place} imports {name}" for name in module.imports(at_run_time=True) if name.split(".")[0] in IMPURE
    ]


def spelled(module: Module) -> list[str]:
    """AC-1: a timeout code that is spelled outside of ``errors``, or of the laws, which are there to check it."""
    if module.place == "errors.py" or module.room == "testing":
        return []
    codes = errors._TIMEOUT_CODES | {errors.durable_code(code) for code in errors._TIMEOUT_CODES}
    return [
        f"{module.place}:{node.lineno} spells {node.value}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in codes
    ]


@pytest.mark.parametrize("rule", [upward, upward_within, astray, acting, spelled], ids=lambda rule: rule.__name__)
def test_every_file_keeps_the_rule(rule: object) -> None:
    assert callable(rule)
    assert [fault for module in modules() for fault in rule(module)] == []


def test_every_room_has_its_floor() -> None:
    assert {module.room for module in modules()} - {"__init__", "__main__", "testing"} <= set(FLOOR)


def test_the_rules_are_about_files_that_are_there() -> None:
    places = [module.place for module in modules()]
    for named in (*PURE, *(home for homes in AT_HOME.values() for home in homes)):
        assert any(place.startswith(named) for place in places), named


@pytest.mark.parametrize(
    ("rule", "place", "source"),
    [
        (upward, "errors.py", "from embedkit.settings import Settings"),
        (upward, "knowledge/storing/store.py", "from embedkit import sweep"),
        (upward, "knowledge/storing/store.py", "def late():\n    import embedkit.engine"),
        (upward, "engine/engine.py", "from embedkit.sweep.sweep import Sweep"),
        (upward, "sweep/sweep.py", "from embedkit import Engine"),
        (upward, "surfaces/cli.py", "from embedkit.testing.engine_rules import Rule"),
        (upward, "testing/lane_contract.py", "from embedkit.sweep.sweep import Sweep"),
        (upward, "testing/lane_contract.py", "from embedkit.admission.lane import Lane"),
        (upward, "testing/lane_contract.py", "if TYPE_CHECKING:\n    from embedkit.engine import Engine"),
        (upward, "new_room/file.py", "from embedkit.errors import EmbedkitError"),
        (upward_within, "knowledge/chunking/new.py", "from embedkit.knowledge.storing.store import Store"),
        (upward_within, "knowledge/searching/new.py", "from embedkit.knowledge.indexing import tally"),
        (upward_within, "knowledge/lone.py", "import trio"),
        (astray, "providers/ollama.py", "import httpx"),
        (astray, "providers/ollama.py", "import h11"),
        (astray, "providers/ollama.py", "if TYPE_CHECKING:\n    from httpx import Client"),
        (astray, "surfaces/cli.py", "def late():\n    from cattrs.gen import make"),
        (acting, "sweep/outcome.py", "import trio"),
        (acting, "settings/load.py", "from trio import sleep"),
        (acting, "knowledge/storing/new.py", '"""Something. Pure."""\nimport sqlite3'),
        (spelled, "providers/failures.py", 'CODE = "PROVIDER_TIMEOUT"'),
        (spelled, "sweep/outcome.py", 'if code == "KB_VECTOR_EMBED_PROVIDER_TIMEOUT": pass'),
        (spelled, "providers/failures.py", 'errno = {"ETIMEDOUT": 1}'),
    ],
)
def test_a_fault_is_seen(rule: object, place: str, source: str) -> None:
    assert callable(rule)
    assert len(rule(Module.of(place, source))) == 1


def test_what_is_allowed_is_no_fault() -> None:
    allowed = [
        ("knowledge/storing/store.py", "from embedkit.errors import StoreError\nimport trio"),
        ("admission/lane.py", "if TYPE_CHECKING:\n    from embedkit.providers.provider import Connection"),
        ("knowledge/indexing/new.py", "from embedkit.knowledge.storing.store import Store"),
        ("providers/http.py", "import httpx"),
        ("sweep/outcome.py", "if TYPE_CHECKING:\n    import trio"),
        ("errors.py", 'code = "PROVIDER_TIMEOUT"'),
        ("providers/failures.py", 'text = "no PROVIDER_TIMEOUT here"'),
    ]
    for place, source in allowed:
        module = Module.of(place, source)
        assert [fault for rule in (upward, upward_within, astray, acting, spelled) for fault in rule(module)] == [], (
            place
        )

"""Random TOML documents in every style that keys can be written in. Each key name occurs once in a document."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

SCALARS = [
    "1",
    "-2.5",
    "true",
    "1979-05-27T07:32:00Z",
    "07:32:00",
    "nan",
    '"a = b # no comment"',
    "'c:\\path ] } , \"'",
    '"an escaped \\" quote \\\\"',
    '"""\nkey = 1\n[table]\n# "quotes" \\"""\n"""""',
    "'''\nother = 2\n[[x]]\n'''''",
    '""',
    "''",
]
BLANKS = ["", "\n", "# a comment = [1]\n", "  \t\n\n", "\r\n"]


class Writer:
    """Draws one document and writes it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.names = 0

    def key(self) -> str:
        self.names += 1
        name = f"k{self.names}"
        quoted = [name, f'"{name} . x"', f"'{name}=#['", f'"{name}.é"']
        return self.draw(st.sampled_from(quoted))

    def blank(self) -> str:
        return self.draw(st.sampled_from(BLANKS))

    def scalar(self) -> str:
        return self.draw(st.sampled_from(SCALARS))

    def value(self, depth: int) -> str:
        style = self.draw(st.sampled_from(["scalar", "scalar", "array", "inline"] if depth else ["scalar"]))
        if style == "scalar":
            return self.scalar()
        if style == "inline":
            count = self.draw(st.integers(0, 3))
            return "{ " + ", ".join(self.pair(depth - 1) for _ in range(count)) + " }"
        text = "["
        for _ in range(self.draw(st.integers(0, 3))):
            text += f"{self.blank()} {self.value(depth - 1)}{self.blank()},"
        return text + self.blank() + "]"

    def pair(self, depth: int) -> str:
        dotted = [self.key() for _ in range(self.draw(st.integers(1, 2)))]
        dot = self.draw(st.sampled_from([".", " . "]))
        return f"{dot.join(dotted)}{self.draw(st.sampled_from([' ', '']))}= {self.value(depth)}"

    def pairs(self) -> str:
        lines = ""
        for _ in range(self.draw(st.integers(0, 3))):
            lines += f"{self.blank()}\n{self.pair(2)} {self.draw(st.sampled_from(['', '# = tail']))}\n"
        return lines

    def tables(self, above: str, depth: int) -> str:
        text = ""
        for _ in range(self.draw(st.integers(0, 2))):
            path = above + self.key()
            if self.draw(st.booleans()):
                for _ in range(self.draw(st.integers(1, 2))):
                    text += f"[[ {path} ]] # x\n{self.pairs()}"
                    text += self.tables(path + ".", depth - 1) if depth else ""
            else:
                text += f"  [{path}]\n{self.pairs()}"
                text += self.tables(path + ".", depth - 1) if depth else ""
        return text


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A document that ``tomllib`` accepts."""
    writer = Writer(draw)
    return writer.pairs() + writer.tables("", 2)


def leaves(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of everything that is neither a table nor an array."""
    if isinstance(value, dict):
        return [path for name, inner in value.items() for path in leaves(inner, (*at, name))]
    if isinstance(value, list):
        return [path for index, inner in enumerate(value) for path in leaves(inner, (*at, index))]
    return [at]

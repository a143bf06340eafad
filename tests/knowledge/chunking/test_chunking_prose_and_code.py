from __future__ import annotations

import pytest

from embedkit.knowledge.chunking import ChunkLimits, chunk, outline_of
from embedkit.knowledge.chunking.page import Page

SMALL = ChunkLimits(16, 64)
WORDS = "Some words of a paragraph that fills its section, so that it is a piece of its own among others here.\n"


def names(path: str, text: str) -> list[str]:
    return [definition.name for definition in outline_of(path, Page(text)).definitions]


MARKDOWN = f"""# Install

{WORDS}
## On Debian

{WORDS}
```sh
# not a heading
apt install it
```

## On Fedora ##

{WORDS}
Usage
=====

{WORDS}"""


def test_markdown_is_cut_at_headings_and_keeps_their_trail() -> None:
    chunks = chunk("README.md", MARKDOWN, limits=ChunkLimits(48, 64))
    assert [(piece.scope, piece.text.split("\n")[0]) for piece in chunks] == [
        ("Install", "# Install"),
        ("Install > On Debian", "## On Debian"),
        ("Install > On Fedora", "## On Fedora ##"),
        ("Usage", "Usage"),
    ]


def test_merged_sections_are_all_named() -> None:
    (only,) = chunk("README.md", "# A\n\n## B\n\ntext\n\n## C\n\ntext\n")
    assert only.scope == "A > B, A > C"


def test_a_fence_that_is_never_closed_hides_headings_but_no_text() -> None:
    text = "# A\n\n```\n# B\n" + WORDS * 50
    chunks = chunk("a.md", text)
    assert {piece.scope for piece in chunks} == {"A"}
    assert sum(piece.text.count("Some words") for piece in chunks) == 50


RST = f"""=======
Library
=======

{WORDS}
Parts
=====

{WORDS}
Detail
------

{WORDS}
===  ===
a    b
===  ===

Other
=====

{WORDS}"""


def test_restructured_text_ranks_headings_in_order_of_appearance() -> None:
    assert names("index.rst", RST) == [
        "Library",
        "Library > Parts",
        "Library > Parts > Detail",
        "Library > Other",
    ]


def test_plain_text_is_cut_at_paragraphs() -> None:
    chunks = chunk("notes.txt", "\n".join([WORDS * 2] * 12), limits=ChunkLimits(60, 120))
    assert all(piece.text.startswith("Some words") and piece.text.endswith("here.") for piece in chunks)
    assert {piece.end_line - piece.start_line for piece in chunks} == {1}


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.c", "/* f(x) */\nstatic int add(int a,\n               int b)\n{\n    if (a) {\n    }\n}\n", ["add"]),
        ("a.h", "struct point {\n    int x;\n};\nint declared(void);\n", ["point"]),
        ("a.cpp", "namespace geo {\nclass P : Base {\n  int x() { return 1; }\n};\n}\n", ["geo", "P", "P.x"]),
        ("a.rs", "impl<T> Point<T> {\n    pub fn x(&self) -> T {\n        self.x\n    }\n}\n", ["Point", "Point.x"]),
        ("a.go", "func (p *Point) X() int {\n\treturn p.x\n}\n\ntype Point struct {\n\tx int\n}\n", ["X", "Point"]),
        ("A.java", "public class A {\n    public static void main(String[] a) {\n    }\n}\n", ["A", "A.main"]),
        ("a.js", "export const go = async (a) => {\n  work(a)\n}\nfunction stop() {}\n", ["go", "stop"]),
        ("a.ts", "export interface Shape {\n  area(): number;\n}\n", ["Shape"]),
        ("a.rb", "class Dog\n  def bark\n    puts 1\n  end\nend\n", ["Dog", "Dog.bark"]),
        ("a.sh", "# build(x)\nbuild() {\n  make\n}\nfunction clean {\n  rm x\n}\n", ["build", "clean"]),
        ("a.sql", "CREATE TABLE IF NOT EXISTS users (\n  id int\n);\n", ["users"]),
        ("a.json", '{\n  "function": {\n    "class x": 1\n  }\n}\n', []),
    ],
)  # fmt: skip
def test_common_languages_name_what_they_define(path: str, text: str, expected: list[str]) -> None:
    assert names(path, text) == expected


def test_a_closing_line_stays_with_what_it_closes_and_a_comment_with_what_follows() -> None:
    body = "".join(f"    call({i}, {i});\n" for i in range(12))
    text = "".join(f"/* About f{n}.\n * More.\n */\nint f{n}(void)\n{{\n{body}}}\n\n" for n in range(8))
    chunks = chunk("a.c", text, limits=ChunkLimits(120, 240))
    assert [piece.scope for piece in chunks] == [f"f{n}" for n in range(8)]
    assert all(piece.text.startswith("/*") and piece.text.endswith("}") for piece in chunks)


def test_data_is_cut_where_it_is_indented_least() -> None:
    text = "".join(f"name{n}:\n" + "".join(f"  key{i}: value {i}\n" for i in range(12)) for n in range(20))
    chunks = chunk("a.yaml", text, limits=ChunkLimits(120, 240))
    assert all(piece.text.startswith("name") and piece.scope == "" for piece in chunks)

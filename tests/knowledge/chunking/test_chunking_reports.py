# ruff: noqa: E501  # a source in one string reads best in one line
"""Chunks as the field's reports want them: one test a kind."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from embedkit.knowledge.chunking import ChunkLimits, chunk
from embedkit.knowledge.model import Chunk, input_hash
from embedkit.knowledge.searching.words import embedding_input

SMALL = ChunkLimits(target_tokens=60, max_tokens=120)


def scopes(pieces: list[Chunk]) -> list[str]:
    return [piece.scope for piece in pieces]


def inputs(path: str, text: str, limits: ChunkLimits = SMALL) -> set[bytes]:
    return {input_hash(embedding_input(piece.scope, piece.text)) for piece in chunk(path, text, limits=limits)}


def test_a_line_that_begins_with_an_inline_code_span_opens_no_block() -> None:
    """langchain#13511: all headings behind it were lost."""
    body = "words " * 60
    text = f"# One\n\n```pip install x``` is how.\n\n{body}\n\n# Two\n\n{body}\n"
    assert scopes(chunk("a.md", text, limits=SMALL))[-1] == "Two"
    fenced = f"# One\n\n{body}\n\n~~~sh `a`\n# no heading\n~~~~\n\n# Two\n\n{body}\n"
    found = scopes(chunk("a.md", fenced, limits=SMALL))
    assert "no heading" not in " ".join(found)
    assert found[-1] == "Two"
    indented = f"# One\n\n{body}\n\n     ```\n\n# Two\n\n{body}\n"  # four blanks: code, and no fence
    assert scopes(chunk("a.md", indented, limits=SMALL))[-1] == "Two"


@pytest.mark.parametrize("ends", [("---", "---"), ("---", "..."), ("+++", "+++")])
def test_front_matter_is_data(ends: tuple[str, str]) -> None:
    """open-webui#30413: its last key was a heading, by the rule below it."""
    text = f"{ends[0]}\ntitle: Trains\n# a note\ntags: [a]\n{ends[1]}\n\n# Real\n\n" + "words " * 80
    found = scopes(chunk("a.md", text, limits=SMALL))
    assert set(found) <= {"", "Real"}
    assert chunk("a.md", "---\n\nno end\n\n# Real\n")[0].scope == "Real"


def test_the_head_of_a_table_goes_with_each_of_its_chunks() -> None:
    """Only the first chunk of a long table said what its columns are."""
    rows = "\n".join(f"| item {number} | {number * 7} | {'word ' * 6}|" for number in range(60))
    text = f"# Prices\n\nAll of them.\n\n| name | price | about |\n|------|:-----:|---|\n{rows}\n\nAfter it, words.\n"
    found = chunk("a.md", text, limits=SMALL)
    inner = [piece for piece in found if piece.text.startswith("| item")]
    assert len(inner) > 5
    assert {piece.scope for piece in inner if "After" not in piece.text} == {"Prices > name | price | about"}


@pytest.mark.parametrize("indent", [2, 4, None])
def test_a_list_of_objects_is_cut_between_them(indent: int | None) -> None:
    objects = [{"name": f"item {number}", "price": number, "about": "word " * 8} for number in range(200)]
    found = chunk("a.json", json.dumps(objects, indent=indent), limits=SMALL)
    assert len(found) > 20
    whole = sum(piece.text.strip().rstrip(",]").endswith("}") for piece in found)
    assert whole >= len(found) - 1


def test_old_mac_line_ends_are_lines() -> None:
    """gate-core#38: every chunk was 1-1."""
    text = "\r".join(f"line {number} {'word ' * 10}" for number in range(100))
    found = chunk("a.txt", text, limits=SMALL)
    assert [piece.start_line for piece in found[1:]] == [piece.end_line + 1 for piece in found[:-1]]
    assert found[-1].end_line == 100


FLAT: dict[str, Callable[[int, str], str]] = {
    "a.csv": lambda number, word: f"{number},{word},{number * 31 % 97},some more words about {word}",
    "a.jsonl": lambda number, word: json.dumps({"id": number, "word": word, "about": f"some more words about {word}"}),
    "a.log": lambda number, word: f"2026-01-01T00:{number // 60:02}:{number % 60:02} INFO {word} did what {word} does",
    "a.sql": lambda number, word: f"INSERT INTO t VALUES ({number}, '{word}', 'some more words about {word}');",
}


@pytest.mark.parametrize("path", FLAT)
def test_a_row_put_into_the_middle_costs_a_chunk_or_two(path: str) -> None:
    """MinSync#19: half the file was bought again."""
    chance = random.Random(3)

    def word() -> str:
        return "".join(chance.choices("abcdefghij", k=8))

    lines = ["id,word,price,about"] * path.endswith("csv") + [FLAT[path](number, word()) for number in range(2000)]
    before = inputs(path, "\n".join(lines))
    bought = []
    for _ in range(20):
        changed = list(lines)
        changed.insert(chance.randrange(1, len(lines)), FLAT[path](9999, word()))
        bought.append(len(inputs(path, "\n".join(changed)) - before))
    assert sum(bought) / len(bought) <= 3
    assert max(bought) <= 8 < len(before) / 10


def test_the_columns_of_a_table_go_with_each_of_its_chunks() -> None:
    found = chunk("a.csv", "name,price\n" + "\n".join(f"item {n},{n}" for n in range(500)), limits=SMALL)
    assert set(scopes(found[1:])) == {"name,price"}


@pytest.mark.parametrize("path", FLAT)
def test_rows_that_are_all_the_same_or_far_too_long_are_cut_too(path: str) -> None:
    for text in ("same row\n" * 3000, ("x" * 3000 + "\n") * 20, "\n\n\na\n\n\n", "one row"):
        found = chunk(path, text, limits=SMALL)
        assert "".join("".join(piece.text.split()) for piece in found) == "".join(text.split())


ANNOTATED = {
    "a.java": ("class A {", "    /** Says {n}. */\n    @Override\n    @Named(\n        value = \"x\",\n        n = {n})\n", "    public void say{n}(int a) {\n        call({n});\n        call(a);\n    }\n"),
    "a.rs": ("mod m {", "    /// Says {n}.\n    #[derive(Debug, Clone)]\n    #[cfg(feature = \"x\")]\n", "    pub fn say{n}(a: i32) {\n        call({n});\n        call(a);\n    }\n"),
    "a.cs": ("class A {", "    /// Says {n}.\n    [Authorize]\n    [Route(\"x/{n}\")]\n", "    public void Say{n}(int a)\n    {\n        Call({n});\n        Call(a);\n    }\n"),
    "a.ts": ("class A {", "    // Says {n}.\n    @Input()\n    @Debounce({\n        ms: {n},\n    })\n", "    say{n}(a: number) {\n        call({n});\n        call(a);\n    }\n"),
}  # fmt: skip


@pytest.mark.parametrize("path", ANNOTATED)
def test_what_is_annotated_keeps_its_annotations(path: str) -> None:
    """ck#92: they ended the chunk before; 28.7 % of a Java tree's chunks."""
    head, marks, body = ANNOTATED[path]
    members = [(marks + body).replace("{n}", str(number)) for number in range(30)]
    found = chunk(path, f"{head}\n" + "\n".join(members) + "}\n", limits=SMALL)
    assert len(found) > 10
    for piece in found:
        assert piece.text.count("Says") == piece.text.lower().count("void say") + piece.text.count("fn say") + (
            piece.text.count("    say") if path == "a.ts" else 0
        ), piece.text


@pytest.mark.parametrize(
    ("path", "text", "scope"),
    [
        (
            "a.rs",
            "impl<'a, T: Read> Iterator for Lines<'a, T> {\n    fn next(&mut self) {\n        a\n    }\n}\n",
            "Lines.next",
        ),
        ("a.rs", "impl Widget {\n    fn draw(&self) {\n        a\n    }\n}\n", "Widget.draw"),
        ("a.cs", "class A\n{\n    public int Say(int a)\n    {\n        return a;\n    }\n}\n", "A.Say"),
        ("a.ts", "class A {\n    say = async (a: string): Promise<void> => {\n        go(a);\n    };\n}\n", "A.say"),
        (
            "a.ts",
            "class A {\n    async say(\n        a: string,\n    ): Promise<void> {\n        go(a);\n    }\n}\n",
            "A.say",
        ),
        ("a.c", "static int\nfoo_bar (int a,\n         int b)\n{\n  return a;\n}\n", "foo_bar"),
    ],
)
def test_a_function_has_its_name_in_scope(path: str, text: str, scope: str) -> None:
    """Packages#4104: no name, or the trait's."""
    assert chunk(path, text)[0].scope == scope


def test_a_type_on_a_line_of_its_own_stands_with_the_name_below_it() -> None:
    text = "\n".join(f"static int\nfoo_{n} (int a)\n{{\n  call (a);\n  return {n};\n}}\n" for n in range(40))
    found = chunk("a.c", text, limits=SMALL)
    assert len(found) > 8
    assert all(piece.text.startswith("static int") for piece in found)


def test_a_call_over_several_lines_is_no_method() -> None:
    (piece,) = chunk("a.ts", "class A {\n    go() {\n        say(\n            1,\n        );\n    }\n}\n")
    assert piece.scope == "A.go"

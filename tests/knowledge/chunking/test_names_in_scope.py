# ruff: noqa: E501  # texts read best in one line
"""Which names a chunk carries: what whole trees taught (``benchmarks.chunks`` measures them)."""

from __future__ import annotations

import pytest

from embedkit.knowledge.chunking import chunk
from embedkit.knowledge.chunking.outline import MAX_SCOPE


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        ("a.js", "class A {\n\tconstructor( array, itemSize = 1 ) {\n\t\tx();\n\t}\n}\n", "A.constructor"),
        ("a.js", "class A {\n\tget( v = new Map() ) {\n\t\treturn 'x';\n\t}\n}\n", "A.get"),
        ("a.js", "const B = {\n\tsetFunc: function ( a, b ) {\n\t\tx();\n\t}\n};\n", "setFunc"),
        ("a.js", "module.exports.parse = function (a) {\n  x();\n};\n", "parse"),
        ("a.ts", "class A {\n  next: F = (value) => {\n    x();\n  };\n}\n", "A.next"),
        ("a.ts", "class A {\n  set(handler: () => void, t?: number, ...a: T[]) {\n    x();\n  }\n}\n", "A.set"),
        ("A.java", "class A {\n    static int toBinary(final long a, final int b,\n            final int c) {\n        x();\n    }\n}\n", "A.toBinary"),
        ("A.java", "class A {\n    static <T, U, R, E extends Throwable> F<T, U, R, E> nop() {\n        return N;\n    }\n}\n", "A.nop"),
        ("a.cs", "class A\n{\n    public static T Take<T>(this T a) where T : B\n    {\n        x();\n    }\n}\n", "A.Take"),
        ("a.cs", "class A\n{\n    internal static bool Check(object o)\n        => o.Is(1);\n}\n", "A.Check"),
        ("a.cs", "class A\n{\n    internal static bool Check(object o) => o.Is(1);\n}\n", "A.Check"),
        ("a.cs", 'class A\n{\n    void Exec(string code, string mode = "x")\n    {\n        x();\n    }\n}\n', "A.Exec"),
        ("a.rb", "class A\n  def completed?\n    x\n  end\nend\n", "A.completed?"),
        ("a.rb", "class A\n  def []=(k, v)\n    x\n  end\nend\n", "A.[]="),
        ("a.rb", "class A\n  def self.find!\n    x\n  end\nend\n", "A.find!"),
        ("a.c", "static void\nfoo(int a) {\n\tx();\n}\n", "foo"),
    ],
)  # fmt: skip
def test_the_name_is_found(path: str, text: str, name: str) -> None:
    (only,) = chunk(path, text)
    assert name in only.scope.split(", ")


def test_the_name_of_what_is_called_is_not_a_definition() -> None:
    text = "function f() {\n  call(a,\n    b);\n  if (x(1)) {\n    y = z(2);\n  }\n  while (g(a)) {\n  }\n}\n"
    (only,) = chunk("a.js", text)
    assert only.scope == "f"


def test_a_type_on_a_line_of_its_own_is_not_parted_from_the_name() -> None:
    body = "\tx();\n" * 60
    text = "".join(f"static void\nf{number}(int a) {{\n{body}}}\n\n" for number in range(4))
    starts = {part.start_line for part in chunk("a.c", text)}
    types = {number * 64 + 1 for number in range(4)}
    assert types <= starts


def test_several_classes_name_their_members_and_say_what_they_share_once() -> None:
    text = "class A:\n    def f(self): ...\n    def g(self): ...\n\n\nclass B:\n    def h(self): ...\n"
    (only,) = chunk("a.py", text)
    assert only.scope == "A.f, g, B.h"


def test_where_members_have_no_room_their_classes_are_named() -> None:
    text = "".join(
        f"class C{n}:\n" + "".join(f"    def m{n}{k}{'x' * 40}(self): ...\n" for k in range(3)) for n in range(3)
    )
    (only,) = chunk("a.py", text)
    assert only.scope == "C0, C1, C2"
    assert len(only.scope) <= MAX_SCOPE


def test_a_function_that_is_cut_off_is_named_with_what_begins_after_it() -> None:
    long = "        x = 'some words that fill a line of this function'\n" * 40
    text = f"class A:\n    def f(self):\n{long}\n    def g(self):\n        return 1\n"
    last = chunk("a.py", text)[-1]
    assert last.scope in ("A.f, g", "A.g")
    assert "A.f" in chunk("a.py", text)[1].scope


def test_a_long_comment_is_parted_from_its_function_before_the_function_is_cut() -> None:
    comment = "".join(f"   * line {number} of a comment that tells all about it\n" for number in range(18))
    body = "".join(f"    call(number{number}, {number});\n" for number in range(14))
    text = f"class A {{\n  /**\n{comment}   */\n  method(a) {{\n{body}  }}\n\n  other() {{\n    x();\n  }}\n}}\n"
    first = text.count("\n", 0, text.index("method(a)")) + 1
    (home,) = [part for part in chunk("a.ts", text) if part.start_line <= first <= part.end_line]
    assert home.end_line >= first + 15
    assert "A.method" in home.scope

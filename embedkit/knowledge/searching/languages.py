"""Languages by the suffixes of their files, for ``--lang``; and which paths stand behind others. Pure."""

from __future__ import annotations

from typing import Final

SUFFIXES: Final = {
    "c": ("c", "h"),
    "cpp": ("cc", "cpp", "cxx", "hh", "hpp", "hxx", "h", "ipp", "inl"),
    "csharp": ("cs", "csx"),
    "css": ("css", "scss", "sass", "less"),
    "dart": ("dart",),
    "elixir": ("ex", "exs"),
    "go": ("go",),
    "haskell": ("hs", "lhs"),
    "html": ("html", "htm", "xhtml"),
    "java": ("java",),
    "javascript": ("js", "jsx", "mjs", "cjs"),
    "json": ("json", "jsonl", "ndjson", "geojson"),
    "julia": ("jl",),
    "kotlin": ("kt", "kts"),
    "lua": ("lua",),
    "markdown": ("md", "markdown", "mdx", "qmd", "rmd"),
    "notebook": ("ipynb",),
    "objective-c": ("m", "mm"),
    "perl": ("pl", "pm"),
    "php": ("php",),
    "python": ("py", "pyi", "pyw", "ipynb"),
    "r": ("r", "rmd"),
    "rst": ("rst", "rest"),
    "ruby": ("rb", "rake", "gemspec"),
    "rust": ("rs",),
    "scala": ("scala", "sc"),
    "shell": ("sh", "bash", "zsh", "fish"),
    "sql": ("sql",),
    "swift": ("swift",),
    "text": ("txt", "text"),
    "toml": ("toml",),
    "typescript": ("ts", "tsx", "mts", "cts"),
    "xml": ("xml", "svg", "xsd", "xsl"),
    "yaml": ("yaml", "yml"),
}
"""Names of languages, and the suffixes of their files."""

_SECONDARY = frozenset(
    {"test", "tests", "__tests__", "spec", "specs", "testing", "testdata", "fixtures", "__mocks__", "examples"}
    | {"build", "out", "target", "dist", "vendor", "third_party", "generated", "gen"}
)


def suffixes_of(language: str) -> tuple[str, ...] | None:
    """The suffixes of a language's files; a suffix (``py``, ``.py``) stands for itself; ``None``: not known."""
    name = language.lower().lstrip(".")
    if name in SUFFIXES:
        return SUFFIXES[name]
    known = {suffix for suffixes in SUFFIXES.values() for suffix in suffixes}
    return (name,) if name in known else None


def is_secondary(path: str) -> bool:
    """Whether a document is a test or a built copy: behind sources, where nothing else decides."""
    *folders, name = path.lower().split("/")
    if not _SECONDARY.isdisjoint(folders):
        return True
    stem = name.partition(".")[0]
    return stem.startswith("test_") or stem.endswith("_test") or ".test." in name or ".spec." in name or ".min." in name

"""A domain corpus that everyone has: sentences from the docstrings of Python's standard library."""

from __future__ import annotations

import ast
import inspect
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

# Tests hold fixtures rather than prose; the others are vendored or generated.
SKIPPED_FOLDERS = {
    "__pycache__",
    "idle_test",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "dist-packages",
    "test",
    "tests",
}

MIN_WORDS, MAX_WORDS = 4, 40

# Where a sentence ends: its mark, a space, and something that can open the next one.
_BOUNDARY = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[`]*[A-Z])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|Dr|Mr|Ms|St|No|Fig|al)|\b[A-Z])\.$")
_ROLE = re.compile(r":[a-z:]+:`~?([^`<]+?)(?:\s*<[^>]*>)?`")
# A list item, a field (":param x:"), a table, a directive, a prompt or a signature ("name(args) -> result").
_NOT_PROSE = re.compile(r"\s*(?:[-*+•#|=~>$@%]|\.\.\s|\d+[.)]\s|\(?[a-z0-9]\)\s|:\w|[\w.]+\(.*\)\s*(?:->|--|$))")
_CODE = re.compile(r"[{}\\<>=|^~@]|\*\*|//|::|\w\(\w|__\w|\w_\w+_\w")
_WORD = re.compile(r"[^\W\d_]{2,}")


def docstring_sentences(folder: Path | None = None) -> list[str]:
    """Return the sentences of every docstring below a folder of Python files.

    The order is that of the files' sorted paths and of the lines in them, and nothing is drawn at random, so one
    version of Python always gives the same list. Doctests, code, tables, lists of parameters and whatever else is not
    running text are left out, as are sentences seen before, and those of fewer than 4 or more than 40 words.

    Args:
        folder: Where to look; the standard library by default. Files that do not parse are skipped.
    """
    folder = Path(sysconfig.get_paths()["stdlib"]) if folder is None else Path(folder)
    sentences: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        if SKIPPED_FOLDERS.isdisjoint(path.relative_to(folder).parts[:-1]):
            for docstring in _docstrings(path):
                for paragraph in _paragraphs(docstring):
                    for sentence in _sentences(paragraph):
                        sentences.setdefault(sentence.casefold(), sentence)
    return list(sentences.values())


def _docstrings(path: Path) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Invalid escapes in old modules.
            tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                yield inspect.cleandoc(docstring)


def _paragraphs(docstring: str) -> Iterator[str]:
    """Yield the blocks of lines that are prose: flush left (code and field bodies are indented), none of it code."""
    for block in re.split(r"\n\s*\n", docstring):
        lines = block.splitlines()
        if any(line.lstrip().startswith((">>>", "...")) for line in lines):
            continue
        if any(line[:1].isspace() or _NOT_PROSE.match(line) for line in lines):
            continue
        yield " ".join(line.strip() for line in lines)


def _sentences(paragraph: str) -> Iterator[str]:
    text = _ROLE.sub(r"\1", paragraph).replace("``", "").replace("`", "")
    text = " ".join(text.split())
    piece = ""
    for part in _BOUNDARY.split(text):
        piece = f"{piece} {part}".strip()
        if _ABBREVIATION.search(piece):
            continue
        if _is_prose(piece):
            yield piece
        piece = ""


def _is_prose(sentence: str) -> bool:
    words = sentence.split()
    return (
        MIN_WORDS <= len(words) <= MAX_WORDS
        and sentence[0].isupper()
        and sentence[-1] in ".!?"
        and not sentence.endswith("...")
        and not _CODE.search(sentence)
        and sentence.count('"') % 2 == 0
        and sentence.count("(") == sentence.count(")")
        and 2 * sum(bool(_WORD.search(word)) for word in words) > len(words)
    )

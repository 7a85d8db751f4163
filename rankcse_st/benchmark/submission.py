"""From results to what MTEB's leaderboard takes: its results repository's layout, the model's meta, and a check."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankcse_st.benchmark._mteb import import_mteb, preserved_random_state, quiet_mteb
from rankcse_st.benchmark.data import LOCAL_REVISION
from rankcse_st.benchmark.results import read_task_score

#: What MTEB asks about a model and a card seldom says; the submitter has to.
_ASKED = (
    "release_date",
    "languages",
    "n_parameters",
    "license",
    "public_training_code",
    "public_training_data",
    "training_datasets",
)


@dataclass(frozen=True)
class Submission:
    """A submission that MTEB can load.

    Attributes:
        folder: Where it is: ``results/ORG__NAME/REVISION/`` in it is for the results repository.
        name: The model.
        revision: Its commit.
        tasks: The tasks, whose results MTEB has loaded from the folder.
        meta_file: The draft of the ``ModelMeta`` for MTEB's own repository.
        to_fill_in: The fields of the draft that are None and that MTEB asks for.
    """

    folder: Path
    name: str
    revision: str
    tasks: tuple[str, ...]
    meta_file: Path
    to_fill_in: tuple[str, ...]


def prepare_submission(
    output: str | os.PathLike[str],
    model: str,
    folder: str | os.PathLike[str],
    *,
    revision: str | None = None,
    card: str | os.PathLike[str] | None = None,
) -> Submission:
    """Collect a model's official results into ``folder`` and let MTEB load them.

    Only results of MTEB's own tasks on the revisions of the data that this version of MTEB has are taken; what was
    computed on local data, and this package's own tasks, are not.

    Args:
        output: The folder of results of :func:`~rankcse_st.benchmark.evaluate_models`.
        model: The name of the model on the hub, under which it was evaluated.
        folder: Where to write; must not exist or be empty.
        revision: The commit, if there are results of several.
        card: The model's card: its folder, or its name on the hub. Defaults to ``model``.

    Raises:
        ImportError: If ``mteb`` is not installed.
        FileExistsError: If the folder is not empty.
        ValueError: If the model is not one of the hub, has no official results, or MTEB cannot load them.
    """
    mteb = import_mteb()
    target = Path(folder).expanduser()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{os.fspath(target)!r} exists and is not an empty folder: choose another one.")
    source = _results_folder(Path(output).expanduser() / "results", model, revision)
    with preserved_random_state(), quiet_mteb():
        files = _official_results(mteb, source)
        destination = target / "results" / source.parent.name / source.name
        destination.mkdir(parents=True)
        for path in files.values():
            shutil.copy2(path, destination / path.name)
        if (source / "run_settings.jsonl").is_file():
            shutil.copy2(source / "run_settings.jsonl", destination / "run_settings.jsonl")
        meta = _complete_meta(mteb, source / "model_meta.json", os.fspath(card or model))
        (destination / "model_meta.json").write_text(
            json.dumps(meta.to_dict(), indent=4, default=str) + "\n", encoding="utf-8"
        )
        meta_file = target / f"{source.parent.name}.py"
        meta_file.write_text(_META_MODULE.format(name=_variable(model), code=meta.to_python()), encoding="utf-8")
        _check(mteb, target, model, source.name, files)
    missing = tuple(field for field in _ASKED if getattr(meta, field) is None)
    return Submission(target, model, source.name, tuple(files), meta_file, missing)


_META_MODULE = '''"""Draft for mteb/models/model_implementations: fill in what is None, then open a pull request."""

from mteb.models.model_meta import ModelMeta, ScoringFunction
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper

{name} = {code}
'''


def _variable(model: str) -> str:
    name = re.sub(r"\W", "_", model.split("/")[-1].lower())
    return name if name.isidentifier() else f"model_{name}"


def _results_folder(results: Path, model: str, revision: str | None) -> Path:
    if model.count("/") != 1 or model.startswith("local/"):
        raise ValueError(
            f"{model!r} is no name on the hub (ORGANISATION/NAME): push the model and evaluate it by that name. The "
            "leaderboard takes only models that others can load."
        )
    root = results / model.replace("/", "__").replace(" ", "_")
    found = sorted(path for path in root.glob("*") if path.is_dir()) if root.is_dir() else []
    if revision is not None:
        found = [path for path in found if path.name == revision]
    if len(found) != 1:
        there = ", ".join(path.name for path in found) or "none"
        raise ValueError(
            f"Expected results of one revision of {model} in {os.fspath(results)!r}, found {there}."
            + (" Say which one." if found else " Evaluate the model by this name first.")
        )
    if not re.fullmatch(r"[0-9a-f]{40}", found[0].name):
        raise ValueError(
            f"The results of {model} are of revision {found[0].name}, which is no commit of the hub: they are of a "
            "local copy. Evaluate the model by its name alone, so that it is loaded from the hub."
        )
    return found[0]


def _official_results(mteb: Any, source: Path) -> dict[str, Path]:
    """The results to submit by task."""
    files: dict[str, Path] = {}
    for path in sorted(source.glob("*.json")):
        if path.name == "model_meta.json":
            continue
        score = read_task_score(path)
        try:
            revision = mteb.get_task(score.task).metadata.revision
        except KeyError:
            continue
        if score.dataset_revision != revision:
            raise ValueError(
                f"{score.task} was evaluated on revision {score.dataset_revision} of its data, this version of MTEB "
                f"has {revision}: evaluate it again."
            )
        if not math.isfinite(score.score):
            raise ValueError(f"The main score of {score.task} is {score.score}: the leaderboard would show nothing.")
        files[score.task] = path
    if not files:
        local = any(
            read_task_score(path).dataset_revision.startswith(LOCAL_REVISION)
            for path in source.glob("experiments/*/*.json")
            if path.name != "model_meta.json"
        )
        raise ValueError(
            "There are no official results of MTEB's tasks here."
            + (" What is here is on local data, which never counts: evaluate without local data." if local else "")
        )
    return files


def _complete_meta(mteb: Any, path: Path, card: str) -> Any:
    """The model's meta as the evaluation wrote it, with what the model's card says."""
    from huggingface_hub import ModelCard

    meta_class = mteb.models.ModelMeta
    meta = meta_class.model_validate_json_resolved(path.read_text(encoding="utf-8"))
    readme = Path(card).expanduser() / "README.md"
    data = ModelCard.load(readme if readme.is_file() else card).data
    update: dict[str, Any] = {
        "open_weights": True,
        "reference": f"https://huggingface.co/{meta.name}",
        "experiment_kwargs": None,
    }
    if data.license is not None:
        update["license"] = str(data.license).lower()
    languages = [data.language] if isinstance(data.language, str) else list(data.language or [])
    known = [_language(str(language)) for language in languages]
    if known and None not in known:
        update["languages"] = known
    base = data.base_model
    base = base[0] if isinstance(base, list) and base else base
    # A path of the machine that trained the model says nothing to others.
    if isinstance(base, str) and base.count("/") <= 1 and not base.startswith((".", "/")):
        update["adapted_from"] = base
    # Validated, not only copied: a card may hold a license that MTEB does not know.
    return meta_class.model_validate({**meta.model_dump(), **update})


def _language(code: str) -> str | None:
    """MTEB's code of a card's language; None where the script does not follow from it."""
    if re.fullmatch(r"[a-z]{3}-[A-Z][a-z]{3}", code):
        return code
    return {"en": "eng-Latn", "eng": "eng-Latn"}.get(code)


def _check(mteb: Any, folder: Path, model: str, revision: str, files: dict[str, Path]) -> None:
    """Load the folder as MTEB does, and compare with what was measured."""
    loaded = mteb.ResultCache(folder).load_results(
        models=[model], tasks=list(files), include_remote=False, validate_and_filter=True
    )
    scores = {
        result.task_name: result.get_score()
        for model_result in loaded.model_results
        if (model_result.model_name, model_result.model_revision) == (model, revision)
        for result in model_result.task_results
    }
    for task, path in files.items():
        expected = read_task_score(path).score
        if task not in scores or not math.isclose(scores[task], expected, abs_tol=1e-6):
            raise ValueError(
                f"MTEB reads {scores.get(task)} for {task} where {expected} was measured: evaluate it again."
            )

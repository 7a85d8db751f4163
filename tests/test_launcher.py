"""Two real processes, started by accelerate's command line, score one dataset and share its batches of neighbours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SENTENCES, build_tokenizer, free_port
from datasets import Dataset, load_from_disk
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from rankcse_st import Teacher, TeacherScoreDataset
from rankcse_st.sampler import NeighbourBatchSampler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("processes"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo"),
]

WORLD_SIZE = 2
ROWS = 250
SHARD_SIZE = 32
BATCH_SIZE = 16
EPOCHS = 2
TEXTS = [f"{first} {second}" for first in SENTENCES for second in SENTENCES][:ROWS]
# Names of trainings: whether the last batch is dropped, and the seed.
TRAININGS = {"drop": (True, 3), "keep": (False, 3), "drop again": (True, 3), "drop, other seed": (True, 4)}

SCRIPT = """
import json
import os
import sys
from pathlib import Path

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments

from rankcse_st import ListwiseDistillationLoss, Teacher, TeacherScoreDataset
from rankcse_st.sampler import NeighbourBatchSampler, SetSamplerEpoch

folder = Path(sys.argv[1])
options = json.loads((folder / "options.json").read_text())
rank = int(os.environ["RANK"])
found = {"world_size": int(os.environ["WORLD_SIZE"]), "encoded": [], "batches": {}}

encode = SentenceTransformer.encode


def counting(self, sentences, **arguments):
    found["encoded"] += sentences
    return encode(self, sentences, **arguments)


SentenceTransformer.encode = counting
teachers = [Teacher(str(folder / "teacher"), 2.0), Teacher(str(folder / "other"), 1.0)]
dataset = TeacherScoreDataset.from_sentences(
    folder / "texts.txt",
    teachers,
    cache_dir=folder / "scores",
    shard_size=options["shard_size"],
    device="cpu",
    show_progress_bar=False,
)
dataset.save_to_disk(folder / f"dataset-{rank}")

number = {text: row for row, text in enumerate((folder / "texts.txt").read_text().splitlines())}
for name, (drop_last, seed) in options["trainings"].items():
    model = SentenceTransformer(str(folder / "teacher"), device="cpu")
    args = SentenceTransformerTrainingArguments(
        str(folder / "run"),
        num_train_epochs=options["epochs"],
        per_device_train_batch_size=options["batch_size"],
        accelerator_config={"even_batches": False},  # Else the last batch is filled up with rows of the first one.
        seed=seed,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        batch_sampler=NeighbourBatchSampler.with_options(group_size=8, dimension=16, cell_size=96),
    )
    trainer = SentenceTransformerTrainer(
        model, args, dataset, loss=ListwiseDistillationLoss(model), callbacks=[SetSamplerEpoch()]
    )
    trainer.args.dataloader_drop_last = drop_last  # Sentence Transformers turns it on for several processes.
    collate, batches = trainer.data_collator, found["batches"].setdefault(name, [])

    def remembering(rows, collate=collate, batches=batches):
        batches.append([number[row["sentence"]] for row in rows])
        return collate(rows)

    remembering.valid_label_columns = collate.valid_label_columns
    trainer.data_collator = remembering
    trainer.train()
(folder / f"found-{rank}.json").write_text(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where both processes have left what they found."""
    folder = tmp_path_factory.mktemp("launcher")
    tokenizer = build_tokenizer()
    for name, width in (("teacher", 24), ("other", 8)):
        torch.manual_seed(width)
        weights = torch.randn(len(tokenizer), width)
        SentenceTransformer(
            modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu"
        ).save_pretrained(str(folder / name))
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    options = {"shard_size": SHARD_SIZE, "batch_size": BATCH_SIZE, "epochs": EPOCHS, "trainings": TRAININGS}
    (folder / "options.json").write_text(json.dumps(options))
    (folder / "script.py").write_text(SCRIPT)
    # With --cpu, accelerate starts one process however many it is asked for, unless it is by MPI.
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--multi_gpu"]
    command += ["--num_processes", str(WORLD_SIZE), "--num_machines", "1", "--mixed_precision", "no"]
    # Port 0 would do, but accelerate 1.3 hands it on as it is, and nobody meets there.
    command += ["--dynamo_backend", "no", "--main_process_port", free_port(), str(folder / "script.py"), str(folder)]
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-5000:]
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> list[dict[str, Any]]:
    """What each process found."""
    found = [json.loads((folder / f"found-{rank}.json").read_text()) for rank in range(WORLD_SIZE)]
    assert [one["world_size"] for one in found] == [WORLD_SIZE] * WORLD_SIZE
    return found


@pytest.fixture(scope="module")
def alone(folder: Path) -> Dataset:
    """The dataset that this process makes by itself, from nothing."""
    teachers = [Teacher(str(folder / "teacher"), 2.0), Teacher(str(folder / "other"), 1.0)]
    return TeacherScoreDataset.from_sentences(TEXTS, teachers, device="cpu", show_progress_bar=False)


def labels(dataset: Dataset) -> np.ndarray:
    return np.asarray(dataset.with_format(None)["label"])


def epochs(found: list[dict[str, Any]], name: str) -> list[list[list[list[int]]]]:
    """The rows of each batch of each process in each epoch of a training."""
    result = []
    for epoch in range(EPOCHS):
        shares = [one["batches"][name] for one in found]
        length = len(shares[0]) // EPOCHS
        result.append([share[epoch * length : (epoch + 1) * length] for share in shares])
    return result


class TestScoring:
    def test_both_have_the_dataset_of_one_process(self, folder: Path, alone: Dataset) -> None:
        """Bug: a process with its own shards only, or scores of one process's shards under another one's texts."""
        for rank in range(WORLD_SIZE):
            dataset = load_from_disk(str(folder / f"dataset-{rank}"))
            assert list(dataset["sentence"]) == TEXTS
            assert np.array_equal(labels(dataset), labels(alone))
            assert (
                TeacherScoreDataset.records(dataset)[0]["fingerprint"]
                == (TeacherScoreDataset.records(alone)[0]["fingerprint"])
            )

    def test_each_teacher_reads_each_sentence_once(self, found: list[dict[str, Any]]) -> None:
        """Bug: every process of the launcher scores everything."""
        assert Counter(chain(*(one["encoded"] for one in found))) == dict.fromkeys(TEXTS, 2)
        assert all(len(one["encoded"]) > len(TEXTS) / 2 for one in found)


class TestNeighbourBatches:
    @pytest.mark.parametrize("name", ["drop", "keep"])
    def test_each_sentence_once_an_epoch(self, found: list[dict[str, Any]], name: str) -> None:
        """Bug: both processes train on the same rows, or rows that no process sees."""
        for epoch in epochs(found, name):
            rows = list(chain(*chain(*epoch)))
            assert len(rows) == len(set(rows))
            if name == "keep":
                assert sorted(rows) == list(range(ROWS))
            else:  # Complete batches only, and as many for each process.
                assert len(rows) == ROWS // (WORLD_SIZE * BATCH_SIZE) * WORLD_SIZE * BATCH_SIZE
                assert {len(batch) for batch in chain(*epoch)} == {BATCH_SIZE}

    @pytest.mark.parametrize("name", TRAININGS)
    def test_the_order_is_that_of_one_process(self, found: list[dict[str, Any]], alone: Dataset, name: str) -> None:
        """Bug: processes that find other groups, or whose epoch does not reach the sampler through its wrappers."""
        drop_last, seed = TRAININGS[name]
        sampler = NeighbourBatchSampler(
            alone, BATCH_SIZE, drop_last, seed=seed, group_size=8, dimension=16, cell_size=96
        )
        for number, epoch in enumerate(epochs(found, name)):
            sampler.set_epoch(number)
            expected = list(sampler)
            for rank, batches in enumerate(epoch):
                assert batches == expected[rank::WORLD_SIZE][: len(batches)]
                assert len(batches) == len(expected) // WORLD_SIZE

    def test_other_epochs_and_seeds_have_another_order(self, found: list[dict[str, Any]]) -> None:
        """The canary of the test above, and a bug: the first epoch's order in every epoch."""
        first, second = epochs(found, "drop")
        assert first != second
        assert epochs(found, "drop again") == [first, second]
        assert epochs(found, "drop, other seed")[0] != first

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.data_loader import prepare_data_loader, skip_first_batches
from datasets import Array2D, Dataset, DatasetDict, Features, List, Value
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MSELoss
from torch.utils.data import DataLoader
from transformers import TrainerState

from rankcse_st.neighbours import Reducer, group_neighbours, same_size_kmeans, true_neighbours
from rankcse_st.sampler import NeighbourBatchSampler, SetSamplerEpoch

ROWS, CLUSTERS, WIDTH = 240, 30, 32


def clustered(rows: int = ROWS, clusters: int = CLUSTERS, width: int = WIDTH, noise: float = 0.1) -> np.ndarray:
    """Unit vectors; row ``i`` belongs to cluster ``i % clusters``."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((clusters, width))
    vectors = centres[np.arange(rows) % clusters] + noise * np.sqrt(width) * rng.standard_normal((rows, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def make_dataset(rows: int = ROWS, **options: Any) -> Dataset:
    vectors = clustered(rows, **options)
    features = Features({"sentence": Value("string"), "label": List(Value("float32"), length=vectors.shape[1])})
    return Dataset.from_dict({"sentence": [f"row {i}" for i in range(rows)], "label": list(vectors)}, features=features)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return make_dataset()


def make_sampler(dataset: Dataset, batch_size: int = 24, drop_last: bool = False, **options: Any) -> Any:
    options = {"group_size": 8, "cell_size": 96, "dimension": 16, "seed": 5} | options
    return NeighbourBatchSampler(dataset, batch_size, drop_last, **options)


def neighbour_share(batches: list[list[int]], clusters: int = CLUSTERS) -> float:
    """Share of the pairs inside a batch that are of the same cluster."""
    same = [np.equal.outer(np.array(batch) % clusters, np.array(batch) % clusters).mean() for batch in batches]
    return float(np.mean(same))


class TestPartition:
    @pytest.mark.parametrize(("rows", "size"), [(64, 8), (65, 8), (7, 8), (8, 8), (30, 1), (1, 4), (0, 4)])
    def test_clusters_have_the_same_size(self, rows: int, size: int) -> None:
        """A cluster that overflows or a row that is lost would give a batch of another size or a row twice."""
        vectors = np.random.default_rng(0).integers(-127, 128, (rows, 12)).astype(np.int8)
        clusters = same_size_kmeans(vectors, size, np.random.default_rng(1))
        assert sorted(np.concatenate([np.empty(0, int), *clusters])) == list(range(rows))
        assert sorted(map(len, clusters), reverse=True) == [size] * (rows // size) + [rows % size] * (rows % size > 0)

    def test_equal_vectors_end(self) -> None:
        """Vectors without any direction must not divide by zero nor keep the assignment from ending."""
        for value in (0, 3):
            vectors = np.full((50, 4), value, dtype=np.int8)
            clusters = same_size_kmeans(vectors, 8, np.random.default_rng(0))
            assert sorted(np.concatenate(clusters)) == list(range(50))
        assert not Reducer(np.ones((9, 4)), 4, 0)(np.ones((2, 4))).any()

    def test_finds_planted_groups(self) -> None:
        """Groups must be the planted clusters where these have exactly the groups' size."""
        vectors = clustered(noise=0.02)
        reduced = Reducer(vectors, 32, 0)(vectors)
        groups, rest = group_neighbours(reduced, ROWS // CLUSTERS, 1000, np.random.default_rng(0))
        pure = (groups % CLUSTERS == groups[:, :1] % CLUSTERS).mean()
        assert len(rest) == 0
        assert pure > 0.85
        assert (np.sort(np.random.default_rng(0).permutation(ROWS).reshape(-1, 8)) % CLUSTERS).std(axis=1).min() > 0

    def test_does_not_depend_on_threads_or_order_of_sums(self) -> None:
        """Ranks on other processors add in another order: the arithmetic must be exact, or their batches overlap."""
        vectors = Reducer(clustered(), 32, 0)(clustered())
        expected, _ = group_neighbours(vectors, 8, 100, np.random.default_rng(3))
        # The same dimensions in another order: in inexact arithmetic the sums would differ in their last digits.
        shuffled = np.ascontiguousarray(vectors[:, np.random.default_rng(0).permutation(vectors.shape[1])])
        actual, _ = group_neighbours(shuffled, 8, 100, np.random.default_rng(3))
        np.testing.assert_array_equal(actual, expected)
        other, _ = group_neighbours(vectors, 8, 100, np.random.default_rng(4))
        assert (other != expected).any()

    def test_true_neighbours_match_brute_force(self) -> None:
        """The recall that is reported is worth nothing if its yardstick misses neighbours at the chunks' borders."""
        vectors, anchors = clustered(), np.array([0, 17, 239, 100])
        chunks = (vectors[start : start + 50] for start in range(0, ROWS, 50))
        found = true_neighbours(anchors, vectors[anchors], chunks, 9)
        scores = vectors[anchors].astype(float) @ vectors.T.astype(float)
        scores[np.arange(4), anchors] = -2
        np.testing.assert_array_equal(np.sort(found), np.sort(np.argsort(-scores)[:, :9]))

    def test_narrow_scores_keep_their_order(self) -> None:
        """Teachers whose scores all lie near 1 must not lose everything to the rounding of the common direction."""
        vectors = clustered() * 0.05 + np.eye(WIDTH)[0]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        assert (vectors @ vectors.T).min() > 0.9
        groups, _ = group_neighbours(Reducer(vectors, 32, 0)(vectors), 8, 1000, np.random.default_rng(0))
        assert (groups % CLUSTERS == groups[:, :1] % CLUSTERS).mean() > 0.7


class TestOrder:
    @pytest.mark.parametrize("group_size", [1, 8, 10, 24])
    @pytest.mark.parametrize("drop_last", [False, True])
    @pytest.mark.parametrize("rows", [240, 239, 25, 5])
    def test_each_row_once_in_full_batches(self, rows: int, drop_last: bool, group_size: int) -> None:
        """Rows lost, doubled, or batches that are short before the last break epochs, DDP and the learning rate."""
        sampler = make_sampler(make_dataset(rows), drop_last=drop_last, group_size=group_size)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            batches = list(sampler)
            flat = [row for batch in batches for row in batch]
            assert len(batches) == len(sampler) == (rows // 24 if drop_last else -(-rows // 24))
            assert all(len(batch) == 24 for batch in batches[: len(batches) if drop_last else -1])
            assert len(flat) == len(set(flat)) == (rows // 24 * 24 if drop_last else rows)
            assert set(flat) <= set(range(rows))

    def test_order_is_given_by_seed_and_epoch(self, dataset: Dataset) -> None:
        """Every rank, and a resumed run, must find the order again from nothing but the seed and the epoch."""
        orders = {}
        for seed in (1, 2):
            for epoch in (0, 1):
                sampler, generator = make_sampler(dataset, seed=seed), torch.Generator().manual_seed(epoch)
                again = make_sampler(dataset, seed=seed, generator=generator)
                sampler.set_epoch(epoch)
                again.set_epoch(7)
                list(again)
                again.set_epoch(epoch)
                orders[seed, epoch] = list(sampler)
                assert list(again) == list(again) == orders[seed, epoch]
        values = list(orders.values())
        assert all(a != b for i, a in enumerate(values) for b in values[:i])

    def test_seed_of_older_trainers(self, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before sentence-transformers 6.2, one order for every seed of the training: it is in the generator alone."""
        generator = torch.Generator().manual_seed(3)
        for passed, order in ((False, 3), (True, 0)):
            monkeypatch.setattr("rankcse_st.sampler.SEEDS_BATCH_SAMPLERS", passed)
            assert list(make_sampler(dataset, seed=0, generator=generator)) == list(make_sampler(dataset, seed=order))
            assert list(make_sampler(dataset, seed=5, generator=generator)) == list(make_sampler(dataset, seed=5))

    def test_groups_vary_with_the_epoch(self, dataset: Dataset) -> None:
        """Always the same mates would teach the same lists again: only the order of the groups would be new."""
        sampler = make_sampler(make_dataset(noise=0.5))
        pairs = []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            pairs.append({(int(a), int(b)) for group in sampler.groups() for a in group for b in group if a < b})
        assert pairs[0] - pairs[1]

    def test_batches_hold_neighbours(self, dataset: Dataset) -> None:
        """With groups a batch holds many neighbours, with groups of 1 no more than chance."""
        grouped, shuffled = (neighbour_share(list(make_sampler(dataset, group_size=size))) for size in (8, 1))
        assert shuffled == pytest.approx(1 / 24 + 7 / 239, abs=0.02)
        assert grouped > 3 * shuffled

    def test_group_members_come_together(self, dataset: Dataset) -> None:
        """Groups that divide the batch size must not be cut by the batches' borders."""
        sampler = make_sampler(dataset)
        batch_of = {row: i for i, batch in enumerate(sampler) for row in batch}
        assert all(len({batch_of[int(row)] for row in group}) == 1 for group in sampler.groups())

    def test_group_size_one_needs_no_vectors(self) -> None:
        """Plain shuffling must work for live teachers, whose dataset has no scores."""
        sampler = make_sampler(Dataset.from_dict({"sentence": ["a", "b", "c"]}), batch_size=2, group_size=1)
        assert sorted(row for batch in sampler for row in batch) == [0, 1, 2]

    def test_recall(self, dataset: Dataset) -> None:
        """The reported recall must be that of the groups: near 1 for planted ones, chance where k is everything."""
        sampler = make_sampler(make_dataset(noise=0.02), cell_size=1000, dimension=32)
        assert sampler.recall() > 0.8
        assert sampler.recall(k=ROWS - 1) == 1.0
        groups, vectors = sampler.groups(), clustered(noise=0.02).astype(float)
        scores = vectors @ vectors.T - 3 * np.eye(ROWS)
        nearest = np.argsort(-scores)[:, :7]
        hits = [len(set(group) & set(nearest[row])) / 7 for group in groups for row in group]
        assert sampler.recall() == pytest.approx(np.mean(hits))
        with pytest.raises(ValueError, match="group size above 1"):
            make_sampler(dataset, group_size=1).recall()


class TestDuplicates:
    def test_same_texts_are_kept_apart(self) -> None:
        """The same text twice in a batch is a false negative; near neighbours would bring all copies together."""
        plain = make_dataset(120, clusters=40)
        texts = [f"text {i % 40}" for i in range(120)]
        vectors = clustered(40, clusters=40)[np.arange(120) % 40]
        dataset = plain.remove_columns("label").map(
            lambda _, i: {"sentence": texts[i], "label": vectors[i]}, with_indices=True
        )
        for group_size in (1, 4):
            batches = list(make_sampler(dataset, batch_size=12, group_size=group_size, cell_size=64))
            assert sorted(row for batch in batches for row in batch) == list(range(120))
            twice = [len(batch) - len({texts[row] for row in batch}) for batch in batches]
            assert sum(twice) <= 2
            careless = make_sampler(
                dataset, batch_size=12, group_size=group_size, cell_size=64, spread_duplicates=False
            )
            assert sum(len(batch) - len({texts[row] for row in batch}) for batch in careless) > 5

    def test_one_text_throughout(self) -> None:
        """Where duplicates cannot be kept apart no row may be lost, and it must not take forever."""
        dataset = Dataset.from_dict({"sentence": ["same"] * 500, "label": [[0.6, 0.8]] * 500})
        for group_size in (1, 4):
            batches = list(make_sampler(dataset, group_size=group_size))
            assert sorted(row for batch in batches for row in batch) == list(range(500))


class TestLabels:
    @pytest.mark.parametrize("kind", ["fixed", "list", "float16", "columns", "array2d", "torch", "transform"])
    def test_every_way_to_store_them(self, dataset: Dataset, kind: str) -> None:
        """The order must not depend on how the vectors are stored or formatted."""
        vectors = clustered().astype(np.float16).astype(np.float32)
        columns: dict[str, Any] = {"sentence": [f"row {i}" for i in range(ROWS)]}
        width = List(Value("float32"), length=WIDTH)
        feature: Any = {"list": List(Value("float32")), "float16": List(Value("float16"), length=WIDTH)}.get(
            kind, width
        )
        label: Any = list(vectors)
        if kind in ("columns", "array2d"):
            columns["positive"] = columns["sentence"]
            feature = List(width, length=2) if kind == "columns" else Array2D((2, WIDTH), "float32")
            # The second column's vectors are others and must not be looked at.
            label = list(np.stack([vectors, vectors[::-1]], axis=1))
        features = Features({**{name: Value("string") for name in columns}, "label": feature})
        stored = Dataset.from_dict({**columns, "label": label}, features=features)
        if kind == "torch":
            stored = stored.with_format("torch", columns=["label"])
        if kind == "transform":
            stored = stored.with_transform(lambda batch: {"sentence": ["?"] * len(batch["sentence"])})
        plain = Dataset.from_dict({"sentence": columns["sentence"], "label": list(vectors)})
        assert list(make_sampler(stored)) == list(make_sampler(plain))
        assert list(make_sampler(stored)) != list(make_sampler(dataset.select(range(ROWS)[::-1])))

    def test_select_and_shuffle_apply(self, dataset: Dataset) -> None:
        """Reading the table behind a selection would find the neighbours of other rows."""
        order = np.random.default_rng(0).permutation(ROWS)[:160]
        selected = dataset.select(order)
        batches = [[int(order[row]) for row in batch] for batch in make_sampler(selected)]
        assert neighbour_share(batches) > 3 * neighbour_share(list(make_sampler(selected, group_size=1)))
        rebuilt = Dataset.from_dict(selected.to_dict(), features=dataset.features)
        assert list(make_sampler(selected)) == list(make_sampler(rebuilt))

    def test_label_column_by_name(self, dataset: Dataset) -> None:
        """The trainer may look for labels under other names; the sampler must look where it looks."""
        renamed = dataset.rename_column("label", "teacher")
        assert list(make_sampler(renamed, valid_label_columns=["teacher"])) == list(make_sampler(dataset))
        assert list(make_sampler(dataset.rename_column("label", "scores"))) == list(make_sampler(dataset))

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"sentence": ["a", "b"]}, "TeacherScoreDataset"),
            ({"sentence": ["a", "b"], "label": [0.5, 0.1]}, r"shape \(\).*TeacherScoreDataset"),
            ({"sentence": ["a", "b"], "label": [["x", "y"]] * 2}, "must hold numbers"),
            ({"a": ["a"] * 2, "b": ["b"] * 2, "c": ["c"] * 2, "label": [[0.3, 0.1]] * 2}, "explicit scores"),
            ({"a": ["a"] * 2, "b": ["b"] * 2, "label": [[[0.3, 0.1, 0.2]] * 3] * 2}, "expected one for each"),
            ({"sentence": ["a", "b"], "label": [[[[0.3, 0.1]]]] * 2}, "has the shape"),
            ({"sentence": ["a", "b"], "label": [[[0.3, 0.1], [0.2]]] * 2}, "must hold numbers"),
        ],
    )
    def test_wrong_labels_are_errors(self, columns: dict[str, Any], message: str) -> None:
        """A label that is no score vector must be refused with the remedy, before training."""
        with pytest.raises(ValueError, match=message):
            list(make_sampler(Dataset.from_dict(columns), batch_size=2, group_size=2))

    @pytest.mark.parametrize("bad", [[float("nan"), 0.0], [float("inf"), 0.0], [1.0], None])
    def test_bad_rows_are_errors(self, bad: list[float] | None) -> None:
        """NaN, ragged or missing vectors must not turn into neighbours of anything."""
        dataset = Dataset.from_dict({"sentence": ["a", "b", "c"], "label": [[0.6, 0.8], [0.8, 0.6], bad]})
        with pytest.raises(ValueError, match="finite numbers"):
            list(make_sampler(dataset, batch_size=2, group_size=2))

    def test_iterable_dataset_is_an_error(self, dataset: Dataset) -> None:
        """A stream cannot be taken in any order."""
        with pytest.raises(TypeError, match="IterableDataset"):
            make_sampler(dataset.to_iterable_dataset())

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"group_size": 0}, "group_size"),
            ({"group_size": 25}, "batch size of 24"),
            ({"dimension": 0}, "dimension"),
            ({"dimension": 4096}, "dimension"),
            ({"cell_size": 4}, "cell_size"),
        ],
    )
    def test_bad_options_are_errors(self, dataset: Dataset, options: dict[str, int], message: str) -> None:
        """Options out of range must be named."""
        with pytest.raises(ValueError, match=message):
            make_sampler(dataset, **options)
        if options != {"group_size": 25}:
            with pytest.raises(ValueError, match=message):
                NeighbourBatchSampler.with_options(**options)


class TestDistributed:
    def loaders(self, dataset: Dataset, drop_last: bool, processes: int = 2) -> list[Any]:
        rows = dataset.add_column("row", list(range(len(dataset))))
        loaders = []
        for rank in range(processes):
            loader = DataLoader(
                rows,
                batch_sampler=make_sampler(dataset, 24, drop_last),
                collate_fn=lambda batch: [x["row"] for x in batch],
            )
            loaders.append(
                prepare_data_loader(
                    loader, num_processes=processes, process_index=rank, even_batches=False, put_on_device=False
                )
            )
        return loaders

    @pytest.mark.parametrize("drop_last", [False, True])
    def test_shards_are_disjoint(self, dataset: Dataset, drop_last: bool) -> None:
        """Two ranks must share the epoch without overlap, with whole groups in each batch."""
        shards = [list(loader) for loader in self.loaders(dataset, drop_last)]
        rows = [row for shard in shards for batch in shard for row in batch]
        assert len(rows) == len(set(rows)) == ROWS
        assert neighbour_share(shards[0] + shards[1]) > 3 / 24

    def test_epoch_reaches_a_resumed_rank(self, dataset: Dataset) -> None:
        """Accelerate wraps the sampler twice on resuming and loses the epoch: the callback must carry it there."""
        loader = self.loaders(dataset, drop_last=True)[0]
        sampler = loader.batch_sampler.batch_sampler
        sampler.set_epoch(1)
        whole = list(loader.batch_sampler)
        sampler.set_epoch(0)
        SetSamplerEpoch().on_epoch_begin(None, TrainerState(epoch=1.4), None, train_dataloader=loader)
        resumed = skip_first_batches(loader, 2)
        assert sampler.epoch == 1
        assert list(resumed.batch_sampler) == whole[2:]


class Seen:
    """Remember the rows of each batch; a row's text ends in its number."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def collator(self, collate: Callable[..., Any]) -> Callable[..., Any]:
        def remembering(rows: list[dict[str, Any]]) -> Any:
            self.batches.append([int(row["sentence"].split()[-1]) for row in rows])
            return collate(rows)

        remembering.valid_label_columns = collate.valid_label_columns  # type: ignore[attr-defined]
        return remembering


class TestTrainer:
    @pytest.fixture
    def train(self, tiny_model: SentenceTransformer, tmp_path: Path) -> Callable[..., Any]:
        def run(dataset: Any, resume: str | None = None, **options: Any) -> tuple[SentenceTransformerTrainer, Seen]:
            settings = {
                "num_train_epochs": 2,
                "per_device_train_batch_size": 24,
                "learning_rate": 1e-5,
                "report_to": [],
                "disable_tqdm": True,
                "save_strategy": "no",
                "seed": 3,
                "batch_sampler": NeighbourBatchSampler.with_options(group_size=8, cell_size=96),
            } | options
            args = SentenceTransformerTrainingArguments(output_dir=str(tmp_path / "out"), **settings)
            trainer = SentenceTransformerTrainer(
                tiny_model, args=args, train_dataset=dataset, loss=MSELoss(tiny_model), callbacks=[SetSamplerEpoch()]
            )
            seen = Seen()
            trainer.data_collator = seen.collator(trainer.data_collator)
            trainer.train(resume_from_checkpoint=resume)
            return trainer, seen

        return run

    def test_trains(self, dataset: Dataset, train: Callable[..., Any], tmp_path: Path) -> None:
        """The arguments must survive saving, JSON and the model card, and each epoch must have its own order."""
        trainer, seen = train(dataset, eval_strategy="no")
        first, second = seen.batches[:10], seen.batches[10:]
        assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(ROWS))
        assert first != second
        assert neighbour_share(first) > 3 / 24
        assert neighbour_share(second) > 3 / 24
        json.loads(trainer.args.to_json_string())
        trainer.save_model(str(tmp_path / "saved"))
        trainer.create_model_card()
        assert pickle.loads(pickle.dumps(trainer.args)).batch_sampler.keywords["group_size"] == 8
        saved = torch.load(tmp_path / "saved" / "training_args.bin", weights_only=False)
        assert saved.batch_sampler.func is NeighbourBatchSampler
        assert (tmp_path / "saved" / "README.md").exists()

    def test_resume_inside_an_epoch(self, dataset: Dataset, train: Callable[..., Any], tmp_path: Path) -> None:
        """After a stop inside the second epoch the remaining batches must be those that were still to come."""
        _, whole = train(dataset, save_strategy="steps", save_steps=14)
        _, resumed = train(dataset, resume=str(tmp_path / "out" / "checkpoint-14"))
        assert resumed.batches[-6:] == whole.batches[14:20]
        assert len(whole.batches) == 20

    def test_class_itself_and_several_datasets(self, dataset: Dataset, train: Callable[..., Any]) -> None:
        """The class is a batch sampler by itself; each of several datasets gets its own groups."""
        both = DatasetDict(a=dataset.select(range(96)), b=dataset.select(range(96, 240)))
        _, seen = train(both, num_train_epochs=1, batch_sampler=NeighbourBatchSampler)
        assert sorted(chain(*seen.batches)) == list(range(ROWS))
        assert all(max(batch) < 96 or min(batch) >= 96 for batch in seen.batches)

    def test_no_labels(self, dataset: Dataset, train: Callable[..., Any]) -> None:
        """The error must come before the first step."""
        with pytest.raises(ValueError, match="TeacherScoreDataset"):
            train(dataset.remove_columns("label"))

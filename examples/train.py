"""Train a student on a text file, with two teachers, sentences held out and the best checkpoint kept.

    python examples/train.py sentences.txt my-encoder

Everything here is ordinary sentence-transformers, but for the dataset, the loss and the evaluator.
"""

from __future__ import annotations

import argparse

from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)

from rankcse_st import RankCSELoss, Teacher, TeacherScoreDataset
from rankcse_st.evaluation import TeacherAgreementEvaluator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentences", help="UTF-8 text, one sentence on each line")
    parser.add_argument("output", help="folder for the model")
    parser.add_argument("--student", default="microsoft/MiniLM-L12-H384-uncased")
    parser.add_argument(
        "--teachers",
        nargs="+",
        default=["sentence-transformers/all-mpnet-base-v2", "sentence-transformers/all-MiniLM-L12-v2"],
    )
    parser.add_argument("--batch-size", type=int, default=128)
    arguments = parser.parse_args()

    # The teachers run once; a second call with the same folder reads what they said.
    scored = TeacherScoreDataset.from_sentences(
        arguments.sentences,
        [Teacher(name, weight=1.0) for name in arguments.teachers],
        cache_dir=f"{arguments.output}/scores",
    )
    split = scored.train_test_split(test_size=min(1000, len(scored) // 10), seed=42)
    evaluator = TeacherAgreementEvaluator(split["test"]["sentence"], split["test"]["label"][:], name="held-out")

    student = SentenceTransformer(arguments.student)
    print(evaluator(student))
    training = SentenceTransformerTrainingArguments(
        output_dir=f"{arguments.output}/checkpoints",
        per_device_train_batch_size=arguments.batch_size,
        learning_rate=1e-4,
        warmup_steps=0.05,
        eval_strategy="steps",
        eval_steps=0.25,
        save_steps=0.25,
        load_best_model_at_end=True,
        metric_for_best_model=evaluator.primary_metric,
        report_to="none",
    )
    trainer = SentenceTransformerTrainer(
        model=student,
        args=training,
        train_dataset=split["train"],
        loss=RankCSELoss(student),
        evaluator=evaluator,
    )
    trainer.train()
    print(evaluator(student))
    student.save_pretrained(arguments.output)


if __name__ == "__main__":
    main()

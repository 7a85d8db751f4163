"""Train on graded candidates: each question comes with its own answers, some missing, and a grade for each.

    python examples/graded_lists.py my-encoder

sentence-transformers has losses for one right answer, or for exact scores; here it is the order that counts.
"""

from __future__ import annotations

import argparse
import math

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)

from rankcse_st import ListwiseDistillationLoss

# An answer that is missing is an empty text with the grade NaN.
QUESTIONS = [
    {
        "question": "How do I read a file line by line?",
        "answer1": "Loop over the open file: for line in file.",
        "answer2": "Call read() and split the result at newlines.",
        "answer3": "Files are closed when the with block ends.",
        "label": [3.0, 2.0, 0.0],
    },
    {
        "question": "How do I sort a list of dictionaries by a key?",
        "answer1": "Dictionaries keep insertion order.",
        "answer2": "sorted(rows, key=lambda row: row['name'])",
        "answer3": "",
        "label": [0.0, 3.0, math.nan],
    },
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="folder for the model")
    parser.add_argument("--student", default="sentence-transformers/all-MiniLM-L6-v2")
    arguments = parser.parse_args()

    student = SentenceTransformer(arguments.student)
    trainer = SentenceTransformerTrainer(
        model=student,
        args=SentenceTransformerTrainingArguments(
            output_dir=f"{arguments.output}/checkpoints", num_train_epochs=3, learning_rate=1e-5, report_to="none"
        ),
        train_dataset=Dataset.from_list(QUESTIONS),
        # Three candidates and three numbers could also be score vectors of width 3, so it is said which they are.
        loss=ListwiseDistillationLoss(student, label_form="lists"),
    )
    trainer.train()
    student.save_pretrained(arguments.output)


if __name__ == "__main__":
    main()

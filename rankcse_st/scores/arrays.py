"""Arrays of scores on disk: one Arrow file for each set of texts, complete or not there at all.

A file is found by what made it: the folder names the scores (a teacher's fingerprint, or an ensemble's with its
weights), the file names the texts. So nothing else is needed to know what is done: no index, no lock, no clock.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets import Features

_STALE_AFTER_SECONDS = 24 * 3600


def to_arrow(array: np.ndarray) -> pa.Array:
    """An array of 2 or 3 axes as (nested) lists of fixed size, without copying it."""
    values = pa.array(np.ascontiguousarray(array).reshape(-1))
    for size in reversed(array.shape[1:]):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return values


def to_numpy(column: pa.ChunkedArray) -> np.ndarray:
    """The array that :func:`to_arrow` has made a column of; a view of the file where the column has one chunk."""
    values, shape = column.combine_chunks(), [len(column)]
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks else pa.array([], column.type)
    while pa.types.is_fixed_size_list(values.type):
        shape.append(values.type.list_size)
        values = values.flatten()
    array: np.ndarray = values.to_numpy()
    return array.reshape(shape)


class ArrowFolder:
    """A folder of Arrow files that are written once, all or nothing.

    Args:
        path: The folder; made when first written to.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def file(self, *key: str) -> Path:
        """Where the table of ``key`` is, or would be."""
        return self.path.joinpath(*key[:-1], f"{key[-1]}.arrow")

    def read(self, *key: str, rows: int) -> pa.Table | None:
        """The table of ``rows`` rows, memory-mapped; None if it is not there or was damaged (by a power cut, say)."""
        path = self.file(*key)
        try:
            with pa.memory_map(str(path)) as source:
                table = pa.ipc.open_stream(source).read_all()
        except FileNotFoundError:
            return None
        except (pa.ArrowInvalid, OSError):
            # Whoever can still write it again will do so.
            return None
        # A stream that is cut off between two of its messages reads as a complete one with fewer rows.
        return table if len(table) == rows else None

    def write(self, table: pa.Table, *key: str) -> Path:
        """Write a table beside its place and move it there when it is complete."""
        path = self.file(*key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f"{path.stem}.", suffix=".part", dir=path.parent)
        os.close(handle)
        try:
            with pa.OSFile(temporary, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            os.replace(temporary, path)
        except OSError as error:
            raise OSError(
                error.errno,
                f"Scores could not be written to {path.parent} ({error}). What was finished is kept: free some space "
                "and run the same call again.",
            ) from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        return path

    def clean(self) -> None:
        """Remove what killed processes left half written, if it is older than a day."""
        for left in self.path.rglob("*.part"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _STALE_AFTER_SECONDS:
                    left.unlink()


def text_table(columns: dict[str, list[str]], features: Features) -> pa.Table:
    """A table of text columns with the schema that datasets expects."""
    schema = features.arrow_schema
    return pa.Table.from_arrays([pa.array(columns[name], pa.string()) for name in schema.names], schema=schema)


def label_table(label: np.ndarray, features: Features) -> pa.Table:
    """A table of one label column with the schema that datasets expects."""
    schema = features.arrow_schema
    return pa.Table.from_arrays([to_arrow(label).cast(schema.field(0).type)], schema=schema)

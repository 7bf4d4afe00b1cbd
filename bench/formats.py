"""What a row of a capture costs in its file, and in Parquet and Zarr.

    python bench/formats.py                    # needs pyarrow and zarr

The rows are those of bench/data, float16, and for the cost of a read those of a synthetic capture
at V = 128,256 too.  A row is the logits of both models.  Files lie in the system's cache.  Wall
time, the median over `--reads` rows at random after a first one; writing is done once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import click
import numpy as np
import pyarrow
import pyarrow.parquet
import zarr
from measuring import repeated, report

from otlp import captures, synthetic
from otlp.cli.output import console, progress

DATA = Path(__file__).parent / "data" / "standard-library.safetensors"
COLUMNS = ("target_logits", "draft_logits")
SHARD = 512
"""Rows of a shard of Zarr."""

Columns = dict[str, Any]
Reader = Callable[[int], object]


def parquet(columns: Columns, path: Path, *, group: int) -> Callable[[], Reader]:
    """Write groups of rows; the reader takes the group of a row."""
    arrays = {
        name: pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(c.ravel()), c.shape[1])
        for name, c in columns.items()
    }
    made = pyarrow.table(arrays)
    pyarrow.parquet.write_table(
        made, path, compression="zstd", row_group_size=group, use_dictionary=False
    )

    def reader() -> Reader:
        file = pyarrow.parquet.ParquetFile(path)
        return lambda row: [
            column.chunk(0)[row % group].values.to_numpy()
            for column in file.read_row_group(row // group, use_threads=False).columns
        ]

    return reader


def zarr3(columns: Columns, path: Path, *, chunk: int) -> Callable[[], Reader]:
    """Write chunks of rows in shards."""
    group = zarr.create_group(path)
    for name, content in columns.items():
        width = content.shape[1]
        array = group.create_array(
            name, shape=content.shape, dtype=content.dtype, compressors=zarr.codecs.ZstdCodec(),
            chunks=(chunk, width), shards=(SHARD, width),
        )  # fmt: skip
        array[:] = content

    def reader() -> Reader:
        stored = zarr.open_group(path, mode="r")
        arrays = [stored[name] for name in columns]
        return lambda row: [array[row] for array in arrays]

    return reader


def safetensors(capture: captures.Capture, path: Path) -> Callable[[], Reader]:
    """Write a capture in one shard, whose rows are read at their place."""
    path.mkdir()
    captures.save(capture, path / "rows", shard_bytes=1 << 40)
    return partial(placed, path)


def placed(path: Path) -> Reader:
    """Read rows at their place."""
    capture = captures.load(path)
    return lambda row: [getattr(capture, name)[row] for name in COLUMNS]


def mapped(path: Path) -> Reader:
    """Copy rows out of a map that is kept."""
    capture = captures.load(path)
    blocks = [getattr(capture, name).blocks[0] for name in COLUMNS]
    maps = [np.memmap(b.path, b.dtype, "r", b.offset, b.shape) for b in blocks]
    return lambda row: [np.array(one[row]) for one in maps]


def milliseconds(read: Reader, rows: int, reads: int) -> float:
    """Median time of a row at random."""
    picked = iter(np.random.default_rng(0).integers(rows, size=reads + 1).tolist())
    return 1e3 * float(np.median(repeated(lambda: read(next(picked)), reads)))


def megabytes(path: Path) -> float:
    """Size of a file, or of all in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files) / 1e6


@click.command(help=__doc__.replace("\n    ", "\n\n    "), context_settings={"show_default": True})
@click.option("--reads", default=300, type=click.IntRange(1), help="Rows that are read.")
def main(reads: int) -> None:
    capture = replace(captures.load(DATA), contexts=())  # the other formats hold no texts
    columns = {name: np.asarray(getattr(capture, name)) for name in COLUMNS}
    ways: dict[str, Callable[[Path], Callable[[], Reader]]] = {
        "safetensors": partial(safetensors, capture),
        **{
            f"Parquet, zstd, groups of {group}": partial(parquet, columns, group=group)
            for group in (16, 1)
        },
        **{
            f"Zarr 3, zstd, chunks of {chunk}, shards of {SHARD}": partial(
                zarr3, columns, chunk=chunk
            )
            for chunk in (1, 16)
        },
    }
    formats, reading = [], []
    with TemporaryDirectory() as folder, progress("formats", len(ways) + 2) as step:
        for number, (name, write) in enumerate(ways.items()):
            path = Path(folder) / str(number)
            start = perf_counter()
            reader = write(path)
            seconds = perf_counter() - start
            read = milliseconds(reader(), len(capture), reads)
            size = megabytes(path)
            formats.append({"format": name, "MB": size, "write s": seconds, "row ms": read})
            step(name)
        for given in (capture, synthetic.generate(300, 128_256, dtype="float16")):
            path = Path(folder) / f"{given.vocab_size}"
            safetensors(given, path)
            reading.append(
                {"a row, ms; V": given.vocab_size,
                 "read at its place": milliseconds(placed(path), len(given), reads),
                 "from a map that is kept": milliseconds(mapped(path), len(given), reads)}
            )  # fmt: skip
            step(f"V = {given.vocab_size:,}")
    report(f"{len(capture)} rows, V = {capture.vocab_size:,}, {capture.dtype}", formats)
    console.print()
    report("", reading)


if __name__ == "__main__":
    main()

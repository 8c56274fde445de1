"""Write points of the line y = 2x + 10 as TFRecords, with Spark: each partition a file, which training reads.

    python prepare.py --part=0 --out=DIRECTORY

``--part``: of several such tasks each writes files of its own. The ecosystem's Spark templates do it by a connector of
TensorFlow 1; executors that have TensorFlow need none.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

POINTS: Final = 4000
PARTITIONS: Final = 2


def main() -> None:
    """One Spark application on this machine."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - seconds to import; not before it is needed
    from pyspark.sql.functions import rand, randn  # noqa: PLC0415

    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    spark = SparkSession.builder.master(f"local[{PARTITIONS}]").config("spark.ui.enabled", "false").getOrCreate()
    x = (4 * rand(seed=asked.part) - 1).alias("x")
    points = spark.range(POINTS, numPartitions=PARTITIONS).select(x)
    points = points.withColumn("y", 2 * points.x + 10 + 0.1 * randn(seed=asked.part))
    written = points.rdd.mapPartitionsWithIndex(
        lambda number, rows: write(asked.out / f"part-{asked.part}-{number}.tfrecord", rows)
    )
    print(f"Spark {spark.version} wrote {written.sum()} points into {written.getNumPartitions()} files", flush=True)
    spark.stop()


def write(path: Path, rows: Iterable[Any]) -> Iterator[int]:
    """Whole, or not at all: a task that Spark tries again writes the file anew. Gives how many records it has."""
    import tensorflow as tf  # noqa: PLC0415 - in executors alone

    half, many = path.with_suffix(".half"), 0
    with tf.io.TFRecordWriter(str(half)) as file:
        for many, row in enumerate(rows, start=1):  # noqa: B007 - counted
            values = {key: tf.train.Feature(float_list=tf.train.FloatList(value=[row[key]])) for key in ("x", "y")}
            file.write(tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString())
    half.rename(path)
    yield many


if __name__ == "__main__":
    main()

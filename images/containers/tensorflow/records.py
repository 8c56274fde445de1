"""Fit y = 2x + 10 to TFRecords, and save the model: ``python records.py --data=DIRECTORY --out=DIRECTORY``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

EPOCHS: Final = 10
BATCH: Final = 32
LEARNING_RATE: Final = 0.05


def main() -> int:
    """Exits 0 where the line came out right, 1 otherwise."""
    import tensorflow as tf  # noqa: PLC0415 - seconds to import; not before it is needed

    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    files = sorted(map(str, asked.data.glob("*.tfrecord")))
    model = tf.Module()
    model.weight, model.bias = tf.Variable(0.0), tf.Variable(0.0)
    model.predict = tf.function(
        lambda x: model.weight * x + model.bias, input_signature=[tf.TensorSpec([None], tf.float32)]
    )
    fit(tf, model, files)
    tf.saved_model.save(model, str(asked.out / "model"))
    weight, bias = float(model.weight.numpy()), float(model.bias.numpy())
    print(f"train of {len(files)} files: w = {weight:.6f}, b = {bias:.6f}", flush=True)
    return 0 if abs(weight - 2) < 0.15 and abs(bias - 10) < 0.15 else 1  # noqa: PLR2004 - the line's own numbers


def fit(tf: Any, model: Any, files: list[str]) -> None:
    """Gradient descent over all records."""
    features = {key: tf.io.FixedLenFeature([], tf.float32) for key in ("x", "y")}

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow's has no types
    def step(batch: Any) -> None:
        wrong = model.predict(batch["x"]) - batch["y"]
        model.weight.assign_sub(LEARNING_RATE * tf.reduce_mean(2 * wrong * batch["x"]))
        model.bias.assign_sub(LEARNING_RATE * tf.reduce_mean(2 * wrong))

    records = tf.data.TFRecordDataset(files).batch(BATCH).map(lambda one: tf.io.parse_example(one, features))
    for batch in records.repeat(EPOCHS):
        step(batch)


if __name__ == "__main__":
    sys.exit(main())

"""Trains a convolutional network on scikit-learn's handwritten digits, on any number of ranks.

    horovodrun -np 2 python examples/keras_digits.py
    python examples/keras_digits.py              # one rank, without horovodrun

The digits ship with scikit-learn, so nothing is downloaded. Ends with exit code 1 if the validation
accuracy, averaged over the ranks, is below `--least-accuracy`.
"""

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported

import keras
import numpy as np
import sklearn.datasets
import sklearn.model_selection
import tensorflow as tf

import hvd_p3 as hvd


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument(
        "--learning-rate", type=float, default=0.05, help="for one rank; multiplied by the ranks"
    )
    parser.add_argument("--least-accuracy", type=float, default=0.95)
    parser.add_argument(
        "--checkpoint", default="digits.keras", help="file that rank 0 writes; '' for none"
    )
    return parser.parse_args()


def load_digits_of_this_rank():
    """Returns this rank's shard of the training and validation images, all shards equally long."""
    digits = sklearn.datasets.load_digits()
    images = (digits.images / 16.0).astype("float32")[..., np.newaxis]
    parts = sklearn.model_selection.train_test_split(
        images, digits.target, test_size=0.2, random_state=0, stratify=digits.target
    )
    shards = []
    for part in parts:
        # Ranks must run the same number of steps, so what cannot be shared evenly is left out.
        length = len(part) // hvd.size()
        shards.append(part[hvd.rank() * length : (hvd.rank() + 1) * length])
    return shards


def build_model():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main():
    arguments = parse_arguments()

    # 1. Start hvd_p3.
    hvd.init()
    # One GPU for each rank, before TensorFlow uses them; nothing to do on hosts without.
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    # Different seeds: the broadcast callback gives all ranks the weights of rank 0.
    keras.utils.set_random_seed(hvd.rank())
    train_x, validation_x, train_y, validation_y = load_digits_of_this_rank()

    # 2. Scale the learning rate by the number of ranks and wrap the optimizer.
    optimizer = keras.optimizers.SGD(arguments.learning_rate * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer)

    model = build_model()
    model.compile(
        optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

    # 3. Add the callbacks: the same start everywhere, overlapped communication, common metrics.
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.P3Callback(),
        hvd.callbacks.MetricAverageCallback(),
    ]
    # 4. Let one rank write checkpoints and the progress bar.
    if hvd.rank() == 0 and arguments.checkpoint:
        callbacks.append(keras.callbacks.ModelCheckpoint(arguments.checkpoint))

    history = model.fit(
        train_x,
        train_y,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        validation_data=(validation_x, validation_y),
        callbacks=callbacks,
        verbose=1 if hvd.rank() == 0 else 0,
    )

    accuracy = history.history["val_accuracy"][-1]
    if hvd.rank() == 0:
        print(f"digits: validation accuracy {accuracy:.4f} on {hvd.size()} ranks", flush=True)
    return 0 if accuracy >= arguments.least_accuracy else 1


if __name__ == "__main__":
    sys.exit(main())

"""Trains a convolutional network with all that a large distributed training has.

    horovodrun -np 2 python examples/keras_advanced.py
    python examples/keras_advanced.py            # one rank, without horovodrun

A learning rate that is scaled by the number of ranks, warmed up and lowered in steps, with momentum
correction; shards of unequal length; batch normalisation; metrics of all ranks; checkpoints on rank
0, from which a run goes on that was interrupted at any moment. The data are scikit-learn's
handwritten digits, so nothing is downloaded. Ends with exit code 1 if the test accuracy, averaged
over the ranks, is below `--least-accuracy`.
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
    parser.add_argument("--warmup-epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument(
        "--base-learning-rate",
        type=float,
        default=0.02,
        help="for one rank; multiplied by the ranks",
    )
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--least-accuracy", type=float, default=0.95)
    parser.add_argument(
        "--checkpoint", default="digits_advanced.keras", help="file that rank 0 writes and reads"
    )
    parser.add_argument("--best", default="digits_best.keras", help="file of the best model")
    return parser.parse_args()


def load_digits():
    """Returns (images, labels) for training, and for tests, of all ranks."""
    digits = sklearn.datasets.load_digits()
    images = (digits.images / 16.0).astype("float32")[..., np.newaxis]
    train_x, test_x, train_y, test_y = sklearn.model_selection.train_test_split(
        images, digits.target, test_size=0.2, random_state=0, stratify=digits.target
    )
    return (train_x, train_y), (test_x, test_y)


def shard_of_this_rank(images, labels, batch_size, training):
    """Returns a dataset of every size()-th image. Shards may differ in length by one image."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shard(hvd.size(), hvd.rank())
    if training:
        dataset = dataset.shuffle(len(images), seed=hvd.rank())
    return dataset.batch(batch_size)


def build_model():
    def block(filters):
        return [
            keras.layers.Conv2D(filters, 3, padding="same", use_bias=False),
            keras.layers.BatchNormalization(momentum=0.9),  # few steps, so fast averages
            keras.layers.ReLU(),
        ]

    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            *block(32),
            *block(32),
            keras.layers.MaxPooling2D(),
            *block(64),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )


def new_model(arguments):
    # Scale the learning rate by the number of ranks, and wrap the optimizer.
    optimizer = keras.optimizers.SGD(
        arguments.base_learning_rate * hvd.size(),
        momentum=arguments.momentum,
        weight_decay=arguments.weight_decay,
    )
    optimizer = hvd.DistributedOptimizer(optimizer)
    model = build_model()
    model.compile(
        optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def main():
    arguments = parse_arguments()
    hvd.init()
    # One GPU for each rank, before TensorFlow uses them; nothing to do on hosts without.
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    keras.utils.set_random_seed(hvd.rank())
    is_first = hvd.rank() == 0

    # Only rank 0 needs the checkpoint of an interrupted run: it broadcasts what it has loaded.
    resume = is_first and os.path.exists(arguments.checkpoint)
    model = hvd.load_model(arguments.checkpoint) if resume else new_model(arguments)
    train, test = load_digits()
    # All ranks get equally many batches, even where shards differ by an image.
    train_batches = hvd.data.equal_batches(
        shard_of_this_rank(*train, arguments.batch_size, training=True)
    )
    test_batches = shard_of_this_rank(*test, arguments.batch_size, training=False)
    epochs_done = int(model.optimizer.iterations) // int(train_batches.cardinality())
    first_epoch = hvd.broadcast_object(epochs_done, root_rank=0)

    learning_rate = arguments.base_learning_rate * hvd.size()
    two_thirds = arguments.epochs * 2 // 3
    callbacks = [
        # All ranks start from the weights and the optimizer's state of rank 0.
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        # Communication overlaps with the next step.
        hvd.callbacks.P3Callback(verbose=1),
        # The mean over ranks of each metric, for the callbacks that follow.
        hvd.callbacks.MetricAverageCallback(),
        # From the learning rate of one rank to that of all, then a tenth of it at the end.
        hvd.callbacks.LearningRateWarmupCallback(
            learning_rate, warmup_epochs=arguments.warmup_epochs, verbose=1
        ),
        hvd.callbacks.LearningRateScheduleCallback(
            learning_rate, 1.0, start_epoch=arguments.warmup_epochs, end_epoch=two_thirds
        ),
        hvd.callbacks.LearningRateScheduleCallback(
            learning_rate, lambda epoch: 0.1, start_epoch=two_thirds
        ),
        # Rank 0 writes the best model, and the last one, from which the next start goes on.
        hvd.callbacks.BestModelCheckpoint(monitor="val_accuracy", filepath=arguments.best),
        hvd.callbacks.ModelCheckpoint(arguments.checkpoint),
    ]

    model.fit(
        train_batches,
        initial_epoch=first_epoch,
        epochs=arguments.epochs,
        validation_data=test_batches,
        callbacks=callbacks,
        verbose=1 if is_first else 0,
    )

    _, accuracy = model.evaluate(test_batches, verbose=0)
    accuracy = float(hvd.allreduce(accuracy, name="accuracy"))
    if is_first:
        print(
            f"digits: test accuracy {accuracy:.4f} after epochs {first_epoch} to "
            f"{arguments.epochs} on {hvd.size()} ranks",
            flush=True,
        )
    return 0 if accuracy >= arguments.least_accuracy else 1


if __name__ == "__main__":
    sys.exit(main())

"""Models and data that checks share."""

import keras
import numpy as np
import sklearn.datasets

import hvd_p3 as hvd


def digits_of_this_rank(count):
    """The first `count` digits of this rank: images (count, 8, 8, 1) and labels (count,)."""
    digits = sklearn.datasets.load_digits()
    images = (digits.images / 16.0).astype("float32")[..., np.newaxis]
    mine = slice(hvd.rank() * count, (hvd.rank() + 1) * count)
    return images[mine], digits.target[mine]


def digits_model(seed=0):
    """The network of examples/keras_digits.py, smaller, with BatchNormalization."""
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, padding="same", use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(10),
        ]
    )

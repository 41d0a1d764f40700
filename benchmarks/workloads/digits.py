"""A wide network that really computes, on the digits data that comes with scikit-learn."""

import keras
import sklearn.datasets
import tensorflow as tf

_WIDTH = 1024
_BATCH = 32


def make_model():
    """Returns a built Keras model with about 9 MB of gradients."""
    return keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(_WIDTH, activation="relu"),
            keras.layers.Dense(_WIDTH, activation="relu"),
            keras.layers.Dense(_WIDTH, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ],
        name="digits",
    )


def make_data():
    """Returns an endless `tf.data.Dataset` of batches of digits."""
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    dataset = tf.data.Dataset.from_tensor_slices((images.astype("float32") / 16, labels))
    return dataset.shuffle(len(labels), seed=0).repeat().batch(_BATCH)

"""A deep learning recommendation model (DLRM; Naumov et al., 2019)."""

import keras


@keras.saving.register_keras_serializable("hvd_p3.examples")
class PairwiseDotProducts(keras.layers.Layer):
    """The dot products of all pairs of vectors, each pair once: [batch, n, width] to n (n - 1) / 2.

    See Naumov et al., 2019, section 2.
    """

    def call(self, vectors):
        count = vectors.shape[1]
        products = keras.ops.matmul(vectors, keras.ops.transpose(vectors, (0, 2, 1)))
        pairs = [row * count + column for row in range(count) for column in range(row)]
        return keras.ops.take(keras.ops.reshape(products, (-1, count * count)), pairs, axis=1)

    def compute_output_shape(self, input_shape):
        count = input_shape[1]
        return (input_shape[0], count * (count - 1) // 2)


def build_dlrm(dense_features, features, embedding, bottom=(64,), top=(64, 32), seed=0):
    """Builds the model. Its inputs are named `dense_features` and `rows`, its output is a logit.

    Args:
        dense_features: int.
        features: int, number of categorical features.
        embedding: Layer that turns rows of the common table into vectors, [batch, features] to
            [batch, features, width], with an `output_dim`.
        bottom: Tuple of int. Widths of the hidden layers for the dense features.
        top: Tuple of int. Widths of the hidden layers after the interaction.
        seed: int. For the initial weights, the same on all ranks.

    Returns:
        A `keras.Model`, not compiled.
    """
    seeds = keras.random.SeedGenerator(seed)

    def dense_layer(width, activation="relu"):
        initializer = keras.initializers.GlorotUniform(seed=int(seeds.next()[0]))
        return keras.layers.Dense(width, activation, kernel_initializer=initializer)

    dense = keras.Input((dense_features,), name="dense_features")
    rows = keras.Input((features,), dtype="int64", name="rows")
    projected = dense
    for width in (*bottom, embedding.output_dim):
        projected = dense_layer(width)(projected)
    vectors = keras.layers.Concatenate(axis=1)(
        [keras.layers.Reshape((1, embedding.output_dim))(projected), embedding(rows)]
    )
    hidden = keras.layers.Concatenate()([projected, PairwiseDotProducts()(vectors)])
    for width in top:
        hidden = dense_layer(width)(hidden)
    return keras.Model([dense, rows], dense_layer(1, None)(hidden), name="dlrm")

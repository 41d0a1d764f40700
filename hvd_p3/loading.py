"""`load_model`: loads a model and distributes its optimizer, with its state."""

import keras

from hvd_p3 import process
from hvd_p3.loss_scaling import innermost
from hvd_p3.optimizer import DistributedOptimizer


def load_model(
    filepath,
    custom_optimizers=None,
    custom_objects=None,
    compression=None,
    legacy_opts=False,
    **optimizer_arguments,
):
    """Loads a saved model and distributes its optimizer, to go on training.

    The state of the optimizer is loaded too, and training continues as if it had not been
    interrupted. The file may come from a distributed optimizer or another one.

    Args:
        filepath: str or path: a file that `model.save` wrote.
        custom_optimizers: Optional list of optimizer classes of yours that the file may name.
        custom_objects: Optional dict of str to other classes or functions that the file names.
        compression: As in `hvd_p3.DistributedOptimizer`.
        legacy_opts: Must be `False`: Keras 3 has no legacy optimizers.
        **optimizer_arguments: Further arguments of `hvd_p3.DistributedOptimizer`.

    Returns:
        A `keras.Model`. One that was saved without an optimizer has none.

    Raises:
        ValueError: If hvd_p3 is not initialised, `legacy_opts` is set, the file is no model, or
            Keras does not restore the optimizer's state from it, as from legacy `.h5` files.

    Example:

    ```python
    model = hvd_p3.load_model("checkpoint.keras")
    model.fit(x, y, callbacks=[hvd_p3.callbacks.P3Callback()])
    ```
    """
    process.current()
    if legacy_opts:
        raise ValueError(
            "Keras 3 has no legacy optimizers; save the model with one of keras.optimizers. "
            f"Received: legacy_opts={legacy_opts!r}"
        )
    by_name = {each.__name__: each for each in custom_optimizers or ()}
    model = keras.saving.load_model(filepath, custom_objects={**by_name, **(custom_objects or {})})
    _check_state_is_restored(model, filepath)
    if compression is not None:
        optimizer_arguments["compression"] = compression
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, **optimizer_arguments)
    return model


def _check_state_is_restored(model, filepath):
    optimizer = innermost(getattr(model, "optimizer", None))
    if optimizer is None or not optimizer.built:
        return
    if len(optimizer._trainable_variables) != len(model.trainable_variables):
        raise ValueError(
            f"Keras has not restored the state of the optimizer '{optimizer.name}' from "
            f"'{filepath}'. Save the model in the format .keras: model.save('model.keras')."
        )

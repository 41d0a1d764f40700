"""Functions that Keras models traced before the variables had guards."""

import gc

import keras


def forget(variables, fitted_model):
    """Makes every model that uses these variables trace its functions anew.

    Models share variables when they share layers, for example a classifier and its encoder.

    Args:
        variables: List of `keras.Variable`s that have become guarded.
        fitted_model: The `keras.Model` that is in `fit` now; gets its new train function at once.
    """
    guarded = {id(variable) for variable in variables}
    for model in gc.get_objects():
        # Not isinstance, which asks proxies for the class of what they stand for.
        if not issubclass(type(model), keras.Model):
            continue
        if any(id(variable) in guarded for variable in model.variables):
            model.train_function = None
            model.test_function = None
            model.predict_function = None
    fitted_model.make_train_function(force=True)

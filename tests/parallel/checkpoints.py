"""The checkpoints that program_train.py writes, one file for each epoch."""

import keras


def paths(folder):
    """The files in a folder, oldest first."""
    return sorted(folder.glob("*.keras"), key=lambda path: int(path.stem))


def assert_last_is_intact(folder):
    """Loads the last checkpoint that was complete when the job ended: the last may not be."""
    complete = paths(folder)[-2]
    assert keras.saving.load_model(complete).count_params() > 0

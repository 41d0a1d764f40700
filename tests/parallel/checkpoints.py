"""The checkpoints that program_train.py writes, one file for each epoch."""

import keras


def paths(folder):
    """The files in a folder, oldest first."""
    return sorted(folder.glob("*.keras"), key=lambda path: int(path.stem))


def assert_last_is_intact(folder):
    """Loads the last checkpoint, which may have been written while the job ended."""
    assert keras.saving.load_model(paths(folder)[-1]).count_params() > 0

"""The layers of a transformer encoder with the sizes of BERT-large.

Devlin, Chang, Lee and Toutanova: BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding, 2019, section 3: 24 blocks, 1024 units, 16 heads, 4096 units between. The vocabulary,
positions and segments are those of the published model without casing. With the pooling layer, and
without what is used in pre-training only.
"""

import math

SOURCE = (
    "Computed from the structure of BERT-large (Devlin et al. 2019, section 3): 24 blocks, 1024 "
    "units, 16 heads, a vocabulary of 30522, with the pooling layer."
)
EXAMPLE = "a sequence of 128 tokens"

_TOKENS = 128
INPUTS = 3 * _TOKENS  # tokens, segments, mask
_BLOCKS, _UNITS, _BETWEEN, _HEADS = 24, 1024, 4096, 16
_VOCABULARY, _POSITIONS, _SEGMENTS = 30522, 512, 2
_NORMALIZATION_OPERATIONS = 8  # of an element, as in `describe_models`


def _layer(name, flops, activations, **shapes):
    variables = [{"name": variable, "shape": list(shape)} for variable, shape in shapes.items()]
    return {"name": name, "flops": flops, "activations": activations, "variables": variables}


def _dense(name, inputs, outputs, positions=_TOKENS, more_flops=0, more_activations=0):
    return _layer(
        name,
        (2 * inputs + 1) * outputs * positions + more_flops,
        outputs * positions + more_activations,
        kernel=(inputs, outputs),
        bias=(outputs,),
    )


def _normalization(name):
    elements = _UNITS * _TOKENS
    return _layer(
        name, _NORMALIZATION_OPERATIONS * elements, elements, gamma=(_UNITS,), beta=(_UNITS,)
    )


def _block(number):
    prefix = f"block_{number}"
    scores = _HEADS * _TOKENS * _TOKENS
    # Scores and weighted values are products without a variable: counted with the values.
    products = 2 * 2 * _TOKENS * _TOKENS * _UNITS
    return [
        _dense(f"{prefix}_query", _UNITS, _UNITS),
        _dense(f"{prefix}_key", _UNITS, _UNITS),
        _dense(
            f"{prefix}_value",
            _UNITS,
            _UNITS,
            more_flops=products,
            more_activations=2 * scores + _UNITS * _TOKENS,  # scores, softmax, weighted values
        ),
        _dense(f"{prefix}_attention_output", _UNITS, _UNITS),
        _normalization(f"{prefix}_attention_normalization"),
        _dense(f"{prefix}_between", _UNITS, _BETWEEN, more_activations=_BETWEEN * _TOKENS),  # GELU
        _dense(f"{prefix}_output", _BETWEEN, _UNITS),
        _normalization(f"{prefix}_output_normalization"),
    ]


def layers():
    """Describes the layers as `describe_models` writes them.

    Returns:
        List of dict with `name`, `flops`, `activations` and `variables`.
    """
    rows = math.prod((_UNITS, _TOKENS))
    embeddings = _layer(
        "embeddings",
        0,
        rows,
        words=(_VOCABULARY, _UNITS),
        positions=(_POSITIONS, _UNITS),
        segments=(_SEGMENTS, _UNITS),
    )
    blocks = [layer for number in range(_BLOCKS) for layer in _block(number)]
    pooler = _dense("pooler", _UNITS, _UNITS, positions=1)
    return [embeddings, _normalization("embeddings_normalization"), *blocks, pooler]

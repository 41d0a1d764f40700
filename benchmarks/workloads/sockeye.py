"""The layers of Sockeye, the LSTM translator among the models of the P3 paper.

Sockeye's recurrent model with its defaults, 2 layers of LSTM on each side and 512 units: a first
encoder layer of 256 units in each direction, attention by a perceptron, an attentional state that
is fed back to the decoder, and a decoder state computed from the last encoder state. Variables
are those of MXNet: weights are (outputs, inputs), and an LSTM has two biases.
"""

import dataclasses
import math

SOURCE = (
    "Computed from the structure of Sockeye's LSTM translator (Jayarajan et al. 2019: 2+2 layers, "
    "512 units) with the IWSLT15 English-Vietnamese vocabularies of Stanford NLP."
)
EXAMPLE = "a sentence pair of 20 English and 20 Vietnamese words"

INPUTS = 2 * 20  # numbers of words

_ENGLISH, _VIETNAMESE = 17191, 7709  # words in the vocabularies
_WORDS = 20  # in a sentence, of either language
_UNITS = 512  # of each layer and of the embeddings
_ONE_DIRECTION = _UNITS // 2


@dataclasses.dataclass(frozen=True)
class _Use:
    """A variable, and how often a sentence pair multiplies by it or adds it."""

    name: str
    shape: tuple
    times: int

    @property
    def flops(self):
        operations_of_an_element = 2 if len(self.shape) == 2 else 1
        return operations_of_an_element * math.prod(self.shape) * self.times

    @property
    def outputs(self):
        """int, the numbers that a sentence pair leaves in memory."""
        if self.name == "weight" and self.times == 0:
            return self.shape[1] * _WORDS  # rows of an embedding
        return self.shape[0] * self.times if len(self.shape) == 2 else 0


def _embedding(words):
    return [_Use("weight", (words, _UNITS), times=0)]  # rows are looked up


def _dense(outputs, inputs, times):
    return [_Use("weight", (outputs, inputs), times), _Use("bias", (outputs,), times)]


def _lstm(units, inputs):
    gates = 4 * units
    return [
        _Use("input_weight", (gates, inputs), _WORDS),
        _Use("input_bias", (gates,), _WORDS),
        _Use("recurrent_weight", (gates, units), _WORDS),
        _Use("recurrent_bias", (gates,), _WORDS),
    ]


_LAYERS = {
    "source_embedding": _embedding(_ENGLISH),
    "encoder_1_forward": _lstm(_ONE_DIRECTION, inputs=_UNITS),
    "encoder_1_reverse": _lstm(_ONE_DIRECTION, inputs=_UNITS),
    "encoder_2": _lstm(_UNITS, inputs=_UNITS),
    "attention_source": [_Use("weight", (_UNITS, _UNITS), _WORDS)],
    # The hidden and the cell state of either decoder layer.
    **{f"decoder_state_{number}": _dense(_UNITS, _UNITS, times=1) for number in range(4)},
    "target_embedding": _embedding(_VIETNAMESE),
    "decoder_1": _lstm(_UNITS, inputs=2 * _UNITS),  # embedded word and attentional state
    "decoder_2": _lstm(_UNITS, inputs=_UNITS),
    "attention": [
        _Use("query_weight", (_UNITS, _UNITS), _WORDS),
        _Use("score_weight", (1, _UNITS), _WORDS * _WORDS),
    ],
    "attentional_state": _dense(_UNITS, 2 * _UNITS, times=_WORDS),  # decoder and context
    "output": _dense(_VIETNAMESE, _UNITS, times=_WORDS),
}


def layers():
    """Describes the layers as `describe_models` writes them.

    Operations without a variable, such as those of the gates, are ignored. Each use of a weight
    leaves its outputs in memory; the additions of biases leave none of their own.

    Returns:
        List of dict with `name`, `flops`, `activations` and `variables`.
    """
    return [
        {
            "name": name,
            "flops": sum(use.flops for use in uses),
            "activations": sum(use.outputs for use in uses),
            "variables": [{"name": use.name, "shape": list(use.shape)} for use in uses],
        }
        for name, uses in _LAYERS.items()
    ]

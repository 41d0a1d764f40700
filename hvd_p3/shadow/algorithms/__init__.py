"""The algorithms of synchronisation, and the interface behind which users can put their own."""

from hvd_p3.shadow.algorithms.algorithm import Algorithm
from hvd_p3.shadow.algorithms.blockwise_model_update_filtering import BlockwiseModelUpdateFiltering
from hvd_p3.shadow.algorithms.elastic_averaging import ElasticAveraging
from hvd_p3.shadow.algorithms.model_averaging import ModelAveraging

__all__ = ["Algorithm", "BlockwiseModelUpdateFiltering", "ElasticAveraging", "ModelAveraging"]

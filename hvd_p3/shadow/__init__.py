"""ShadowSync: ranks train on their own and are synchronised in the background.

Method: ShadowSync: Performing Synchronization in the Background for Highly Scalable Distributed
Training (Zheng et al., 2020), arXiv 2003.03477.
"""

from hvd_p3.shadow.algorithms import (
    Algorithm,
    BlockwiseModelUpdateFiltering,
    ElasticAveraging,
    ModelAveraging,
)
from hvd_p3.shadow.callbacks import ForegroundSync, ShadowSync
from hvd_p3.shadow.embedding import (
    RowwiseAdagrad,
    ShardedEmbedding,
    SparseOptimizer,
    SparseSGD,
    load_embeddings,
    save_embeddings,
)
from hvd_p3.shadow.hogwild import fit
from hvd_p3.shadow.membership import SynchronizationError

__all__ = [
    "Algorithm",
    "BlockwiseModelUpdateFiltering",
    "ElasticAveraging",
    "ForegroundSync",
    "ModelAveraging",
    "RowwiseAdagrad",
    "ShadowSync",
    "ShardedEmbedding",
    "SparseOptimizer",
    "SparseSGD",
    "SynchronizationError",
    "fit",
    "load_embeddings",
    "save_embeddings",
]

"""ShadowSync: ranks train on their own and are synchronised in the background."""

from hvd_p3.shadow.embedding import (
    RowwiseAdagrad,
    ShardedEmbedding,
    SparseOptimizer,
    SparseSGD,
    load_embeddings,
    save_embeddings,
)

__all__ = [
    "RowwiseAdagrad",
    "ShardedEmbedding",
    "SparseOptimizer",
    "SparseSGD",
    "load_embeddings",
    "save_embeddings",
]

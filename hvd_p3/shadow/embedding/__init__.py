"""Embedding tables that are partitioned over ranks."""

from hvd_p3.shadow.embedding.checkpoint import load_embeddings, save_embeddings
from hvd_p3.shadow.embedding.layer import ShardedEmbedding
from hvd_p3.shadow.embedding.optimizers import RowwiseAdagrad, SparseOptimizer, SparseSGD

__all__ = [
    "RowwiseAdagrad",
    "ShardedEmbedding",
    "SparseOptimizer",
    "SparseSGD",
    "load_embeddings",
    "save_embeddings",
]

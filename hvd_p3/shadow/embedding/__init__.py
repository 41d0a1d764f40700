"""Embedding tables that are partitioned over ranks."""

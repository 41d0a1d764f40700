"""What the benchmarks train or replay."""

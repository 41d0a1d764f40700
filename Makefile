# Entry points; the work is done by the scripts in tools/.
#
# Variables:  TENSORFLOW_VERSION (2.16 to 2.20), PYTHON (3.10 to 3.12),
#             HVD_P3_CACHE (where built Horovod wheels are kept)
TENSORFLOW_VERSION ?= 2.20.0
export TENSORFLOW_VERSION
export PYTHON
export HVD_P3_CACHE
# More arguments for pytest, for example: make test PYTEST_ARGS="-k overlap"
PYTEST_ARGS ?=
# More arguments for the soak test, for example: make soak SOAK_ARGS="--slices 100000 --seed 3"
SOAK_ARGS ?=
# More arguments for the benchmark, see `python -m benchmarks --help`
BENCH_ARGS ?=

.PHONY: help setup demo test soak bench bench-full sanitize cuda-build lint format clean
.NOTPARALLEL:

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup:  ## install all that is needed and build hvd_p3 into .venv
	@tools/setup.sh

demo: setup  ## train a small Keras model on 2 ranks
	@tools/demo.sh

test:  ## check the style and run all tests
	@tools/setup.sh test
	@tools/test.sh $(PYTEST_ARGS)

soak:  ## reduce a million slices on 4 ranks; check results, memory and files
	@tools/setup.sh test
	@tools/soak.sh $(SOAK_ARGS)

bench:  ## compare with stock Horovod on 4 emulated hosts (6 minutes, needs root)
	@tools/setup.sh bench
	@tools/bench.sh $(BENCH_ARGS)

bench-full:  ## the same for all models, systems and networks (an hour)
	@tools/setup.sh bench
	@tools/bench.sh --full $(BENCH_ARGS)

sanitize:  ## run the engine's tests under the thread, address and undefined sanitizers
	@tools/system_packages.sh
	@tools/venv.sh test
	@tools/sanitize.sh $(PYTEST_ARGS)

cuda-build:  ## compile for NVIDIA GPUs into build/cuda and check that it loads; needs nvcc, no GPU
	@tools/setup.sh test
	@tools/cuda_build.sh

lint:  ## check the style only
	@tools/venv.sh test
	@tools/lint.sh

format:  ## format Python and C++ code
	@tools/venv.sh test
	@tools/format.sh

clean:  ## remove what was built, but not .venv or the Horovod cache
	@rm -rf build hvd_p3.egg-info hvd_p3/*.so hvd_p3/_build_info.py .pytest_cache .ruff_cache

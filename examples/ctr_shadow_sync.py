"""Compares ShadowSync with foreground and synchronous training on click-through rates.

    horovodrun -np 4 python examples/ctr_shadow_sync.py              # four minutes
    horovodrun -np 4 python examples/ctr_shadow_sync.py --seeds 5    # means and deviations
    horovodrun -np 2 python examples/ctr_shadow_sync.py --methods s-ma p3 --batches 200

A recommendation model of the DLRM kind (Naumov et al., 2019) learns, in one pass, from a
reproducible stream of clicks with a planted ground truth. Its embedding table is partitioned over
the ranks (`hvd_p3.shadow.ShardedEmbedding`); its dense layers are replicated, and kept together

- in the background, by S-MA, S-BMUF and S-EASGD (`hvd_p3.shadow.ShadowSync`);
- in the foreground every few iterations, by FR-MA, FR-BMUF and FR-EASGD (`ForegroundSync`);
- at every step, by synchronous gradients with priorities (`p3`: `hvd_p3.DistributedOptimizer`);
- not at all (`none`), which shows what synchronisation costs.

Prints examples per second and normalised entropy on a held-out stream, where lower is better; can
write them to a JSON file and a plot. Method: ShadowSync (Zheng et al., 2020), section 4.
"""

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported

from ctr import methods, results
from ctr.click_stream import ClickStream

import hvd_p3 as hvd


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--methods", nargs="+", choices=methods.NAMES, default=methods.NAMES, metavar="METHOD"
    )
    parser.add_argument("--batches", type=int, default=1500, help="of each rank, at least 2")
    parser.add_argument("--batch-size", type=int, default=200, help="examples per rank and step")
    parser.add_argument(
        "--held-out-batches", type=int, default=200, help="of 1,000, of all ranks together"
    )
    parser.add_argument(
        "--workers", type=int, default=1, help="training threads per rank; p3 always has one"
    )
    parser.add_argument("--width", type=int, default=16, help="columns of the embedding table")
    parser.add_argument("--rate", type=float, default=0.1, help="learning rate of dense layers")
    parser.add_argument(
        "--p3-rate", type=float, default=0.05, help="the same for p3, whose global batch is larger"
    )
    parser.add_argument(
        "--embedding-rate", type=float, default=0.1, help="learning rate of the table"
    )
    parser.add_argument("--alpha", type=float, default=0.5, help="elastic parameter")
    parser.add_argument("--eta", type=float, default=0.8, help="step size of s-bmuf and fr-bmuf")
    parser.add_argument(
        "--block-momentum", type=float, default=0.5, help="momentum of s-bmuf and fr-bmuf"
    )
    parser.add_argument(
        "--interval", type=float, default=0.01, help="seconds between background synchronisations"
    )
    parser.add_argument(
        "--every", type=int, default=5, help="iterations between foreground synchronisations"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the clicks")
    parser.add_argument(
        "--seeds", type=int, default=1, help="how many, from --seed on; repeats all methods"
    )
    parser.add_argument("--json", default="", help="file that rank 0 writes; '' for none")
    parser.add_argument("--plot", default="", help="image that rank 0 writes; '' for none")
    arguments = parser.parse_args()
    if arguments.batches < 2:  # the first one is not timed
        parser.error(f"--batches must be at least 2. Received: {arguments.batches}")
    if arguments.seeds < 1:
        parser.error(f"--seeds must be at least 1. Received: {arguments.seeds}")
    return arguments


def main():
    arguments = parse_arguments()
    hvd.init()
    found, best = [], []
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        stream = ClickStream(seed=seed)
        data = methods.load_of_this_rank(stream, arguments)
        best.append(methods.best_possible(stream, arguments))
        for name in arguments.methods:
            found.append(methods.run(name, stream, data, arguments))
            if hvd.rank() == 0:
                print(
                    f"{name}, seed {seed}: {found[-1].examples_per_s:,.0f} examples/s, "
                    f"normalised entropy {found[-1].normalized_entropy:.4f}",
                    flush=True,
                )
    if hvd.rank() == 0:
        summaries = results.summarize(found)
        print(results.as_table(summaries, best), flush=True)
        if arguments.json:
            results.write_json(arguments.json, found, best, hvd.size(), vars(arguments))
        if arguments.plot:
            results.plot(arguments.plot, summaries, best, hvd.size())
    return 0


if __name__ == "__main__":
    sys.exit(main())

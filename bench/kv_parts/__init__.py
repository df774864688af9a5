"""Parts of the benchmark of one node, a file for each; see bench/README.md."""

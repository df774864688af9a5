"""Parts of the memory benchmark, a file for each; see bench/README.md."""

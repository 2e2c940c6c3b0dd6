"""Every way of stopping in every kind of cell on every kernel, a hundred times each: ``make test-kernels``."""

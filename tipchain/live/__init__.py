"""Two live models, compared in one process: `tipchain.align` and its report."""

"""Reports as pages: the parts that all pages share, and the page of a run."""

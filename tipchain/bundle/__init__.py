"""Reference bundles: the torch side of a case, recorded once, for machines without torch."""

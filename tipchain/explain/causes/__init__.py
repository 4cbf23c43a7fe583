"""Why a layer of a port is at fault: it is run again with one thing changed, until it does what the reference does."""

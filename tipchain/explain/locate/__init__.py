"""Which layer of a port is at fault: live models of both frameworks, run side by side in one process."""

"""The commands of ``tipchain``, a module each, loaded when it is called."""

"""Being here, this file puts the tests' folder on the import path, for helpers that several folders share."""

"""One file for each tool dialect: what a model writes, how it is read, how it is forced."""

"""A panel per file: the function that has the file's name, and an EXAMPLE that draws it."""

"""What every room stands on: errors, names, files, caches, shapes. Imports nothing of vtaops."""

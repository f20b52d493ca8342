"""From a tree of loops to the operations of one operator, a Fragment."""

"""Codes that shrink the changes of tensors on their way between server and site, with error feedback. Pure functions."""

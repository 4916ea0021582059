"""How changes of tensors are made small for the way between server and site: codes, coder, error feedback. Pure functions."""

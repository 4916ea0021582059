"""Personalize a finished run again: repeat its last phase and measure mixtures, with a learned alpha and with 21 fixed ones."""

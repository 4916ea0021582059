"""The loop over rounds: who is asked, what is waited for, what is counted and stored."""

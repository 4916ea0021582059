"""The one border between server and site: tensor sets, records, checks, bytes."""

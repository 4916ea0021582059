"""What server and sites exchange: tensor sets, Flower records, their checks, and bytes on the wire."""

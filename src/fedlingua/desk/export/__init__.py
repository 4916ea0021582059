"""A finished run's models, taken away: an adapter, or a directory that peft, transformers or CTranslate2 load without this project."""

"""Export a run's models: an adapter, or a directory that peft, transformers or CTranslate2 load without this project."""

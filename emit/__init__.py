"""Plan → text. Nothing here decides, measures or prints."""

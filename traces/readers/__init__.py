"""Other people's files, one importer each. Every reader recognises its files by content, never by name alone."""

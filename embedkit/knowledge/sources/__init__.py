"""Where documents come from: folders and git repositories."""

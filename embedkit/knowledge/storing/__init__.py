"""What is kept of a repository, in SQLite: functions of a connection, and the store that calls them."""

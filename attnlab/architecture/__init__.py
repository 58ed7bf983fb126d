"""What stands between two attention layers: feed-forward layers, joins, and the way in depth."""

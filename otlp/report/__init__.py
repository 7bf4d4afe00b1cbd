"""Reports: results of commands as sentences and as sections with figures, on one HTML page."""

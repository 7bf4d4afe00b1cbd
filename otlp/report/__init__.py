"""A report: results of commands as plain sentences, sections with figures and tables, one page."""

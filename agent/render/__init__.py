"""Views of reports and trees: text for people, JSON for tools."""

"""Rendering of reports, trees and records: text for people, JSON for tools."""

"""Per-image records of an evaluation: the only source of every score, interval, comparison and report."""

from holdfast.records.records import CellRecord, Records, load_records

__all__ = ["CellRecord", "Records", "load_records"]

"""What was said, image by image: the only source of every score, interval, comparison and report."""

from holdfast.records.records import CellRecord, Records, load_records

__all__ = ["CellRecord", "Records", "load_records"]

"""Pictures on the page: charts of numbers, and how a matplotlib figure becomes a part of an HTML page."""
